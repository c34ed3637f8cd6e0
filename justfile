# Nothing but short names: each recipe is a command of `cargo xtask`.

dev *args:
    cargo xtask dev {{ args }}

test *args:
    cargo xtask test {{ args }}

ci:
    cargo xtask ci

codegen *args:
    cargo xtask codegen {{ args }}

migrate *args:
    cargo xtask migrate {{ args }}
