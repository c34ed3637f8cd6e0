# Short names: each recipe runs the `cargo xtask` command of the same name.

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
