//! The errors of [`read`](crate::read).

use std::fmt;
use std::io;

/// An error of [`read`](crate::read). The sender causes the first three variants, the visitor the last.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The upload is complete, but it is not a valid bundle.
    #[error("{}{reason}", prefix(entry.as_deref()))]
    Invalid {
        /// The violated rule.
        reason: Reason,
        /// The entry that violates the rule, if the error belongs to one entry. This is a display name, not a path:
        /// without a leading `./`, truncated to 256 characters, and with U+FFFD in place of invalid UTF-8 and control
        /// characters.
        entry: Option<String>,
    },
    /// The bundle exceeds a limit.
    #[error("The bundle exceeds the limit of {max} {limit}.")]
    TooLarge {
        /// The exceeded limit.
        limit: Limit,
        /// The value of the limit, in the unit of the [`Limit`].
        max: u64,
    },
    /// Reading the input failed.
    #[error("The bundle could not be read completely.")]
    Io(#[source] io::Error),
    /// The visitor returned an error.
    #[error("The content of the bundle could not be processed.")]
    Visit(#[source] io::Error),
}

fn prefix(entry: Option<&str>) -> String {
    entry.map(|entry| format!("{entry}: ")).unwrap_or_default()
}

impl BundleError {
    /// Sets the entry name, unless a lower layer already set one.
    pub(crate) fn at(mut self, name: &[u8]) -> Self {
        if let Self::Invalid { entry: entry @ None, .. } = &mut self {
            *entry = Some(printable(name));
        }
        self
    }
}

impl Reason {
    pub(crate) fn at(self, name: &[u8]) -> BundleError {
        BundleError::from(self).at(name)
    }
}

impl From<Reason> for BundleError {
    fn from(reason: Reason) -> Self {
        Self::Invalid { reason, entry: None }
    }
}

/// Sanitizes a name from an archive for responses and logs: no control characters, at most 256 characters.
fn printable(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name.strip_prefix(b"./").unwrap_or(name));
    let mut printable: String = name.chars().take(256).collect();
    if printable.len() < name.len() {
        printable.push('…');
    }
    printable.replace(char::is_control, "\u{fffd}")
}

/// A limit on the size of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Bytes of the upload.
    Compressed,
    /// Bytes of content.
    Unpacked,
    /// Files and directories.
    Entries,
    /// Bytes of the names of all files.
    Names,
}

impl Limit {
    /// Returns the identifier that clients see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compressed => "compressed",
            Self::Unpacked => "unpacked",
            Self::Entries => "entries",
            Self::Names => "names",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compressed => "compressed bytes",
            Self::Unpacked => "unpacked bytes",
            Self::Entries => "entries",
            Self::Names => "bytes of file names in total",
        })
    }
}

macro_rules! reasons {
    ($($variant:ident $id:literal $sentence:literal)+) => {
        /// The rule that a bundle violates. The identifier from [`Reason::as_str`] never changes. The sentence from
        /// `Display` may change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $(#[doc = $sentence] $variant,)+
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the identifier that clients see, in `snake_case`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $id,)+
                }
            }
        }

        impl fmt::Display for Reason {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $sentence,)+
                })
            }
        }
    };
}

reasons! {
    NotGzip "not_gzip" "The upload is not gzip data. A bundle is a gzip-compressed tar archive."
    GzipCorrupt "gzip_corrupt" "The gzip data is corrupt."
    TrailingBytes "trailing_bytes" "Bytes follow the gzip member. A bundle is exactly one gzip member."
    Truncated "truncated" "The archive ends before its end marker."
    DataAfterEnd "data_after_end" "Non-zero bytes follow the archive's end marker."

    ChecksumMismatch "checksum_mismatch"
        "A header has the wrong checksum. The upload is not a tar archive, or it is corrupt."
    HeaderInvalid "header_invalid" "A header is not in the ustar, GNU or V7 format."
    SizeInvalid "size_invalid" "The size is negative, too large or not a number."
    DirectoryWithContent "directory_with_content" "A directory entry has content."

    HardLink "hard_link" "The entry is a hard link. A bundle contains only regular files and directories."
    SymbolicLink "symbolic_link" "The entry is a symbolic link. A bundle contains only regular files and directories."
    CharacterDevice "character_device"
        "The entry is a character device. A bundle contains only regular files and directories."
    BlockDevice "block_device" "The entry is a block device. A bundle contains only regular files and directories."
    Fifo "fifo" "The entry is a FIFO. A bundle contains only regular files and directories."
    ContiguousFile "contiguous_file"
        "The entry is a contiguous file. A bundle contains only regular files and directories."
    SparseFile "sparse_file" "The entry is a sparse file. A bundle contains only regular files and directories."
    Submodule "submodule" "The entry is a submodule. A bundle contains only regular files and directories."
    UnknownType "unknown_type" "The entry has an unknown type. A bundle contains only regular files and directories."

    ExtensionTooLarge "extension_too_large" "An extended header is larger than 64 KiB."
    ExtensionMalformed "extension_malformed" "An extended header is malformed, or it sets the name twice."
    ExtensionMisplaced "extension_misplaced"
        "An extended header is not directly followed by its entry, or a global header does not come first."
    ExtensionKey "extension_key" "An extended header sets a key other than the name, times, ownership or attributes."
    SizeOverride "size_override" "An extended header overrides the size."
    LinkTarget "link_target" "An extended header sets a link target."
    NameCharset "name_charset" "An extended header sets a character set. Names must be UTF-8."

    NameTooLong "name_too_long" "The name is longer than 1,024 bytes."
    NameNotUtf8 "name_not_utf8" "The name is not UTF-8."
    ControlCharacter "control_character" "The name contains a control character."
    Backslash "backslash" "The name contains a backslash. Separate path segments with slashes."
    AbsolutePath "absolute_path" "The name is an absolute path."
    DotSegment "dot_segment" "The name has a `.` or `..` segment."
    EmptySegment "empty_segment" "The name is empty, contains a double slash, or names a file and ends in a slash."
    UnexpectedPath "unexpected_path" "A bundle contains only the file svc.json and the directories worker and assets."
    Duplicate "duplicate" "The name occurs more than once."
    CaseCollision "case_collision" "The name, or one of its directories, differs only in case from another name."
    FileAndDirectory "file_and_directory" "The name is used for both a file and a directory."

    ManifestMissing "manifest_missing" "The manifest svc.json is missing."
    ManifestTooLarge "manifest_too_large" "The manifest is larger than 64 KiB."
    ManifestNotJson "manifest_not_json" "The manifest is not valid JSON."
    ManifestDuplicateKey "manifest_duplicate_key" "An object in the manifest has a duplicate key."
    ManifestTooDeep "manifest_too_deep" "The manifest is nested more than 64 levels deep."
    ManifestNul "manifest_nul" "A string in the manifest contains U+0000."
    ManifestNotObject "manifest_not_object" "The manifest is not a JSON object."
    ManifestWrongType "manifest_wrong_type"
        "auth, database, email, ai and storage must be booleans; name, main and compatibilityDate must be strings."
    MainMissing "main_missing"
        "The manifest's main (default: worker/index.js) is not a file under worker/ in the bundle."
    NothingToDeploy "nothing_to_deploy" "The bundle contains neither worker code nor an asset."
}
