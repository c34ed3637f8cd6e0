//! Why a bundle was not taken.

use std::fmt;
use std::io;

/// Why [`read`](crate::read) gave up. The first three are the sender's doing, the last is the caller's own.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The bytes arrived, and they are no bundle.
    #[error("{}{reason}", prefix(entry.as_deref()))]
    Invalid {
        /// Which rule is broken.
        reason: Reason,
        /// The entry that breaks it, if it is one entry's fault. Its name as in the archive, but for people: without a
        /// leading `./`, cut at 256 characters, and with U+FFFD for whatever is not printable text. Not a path.
        entry: Option<String>,
    },
    /// The bundle may be in order, but it is bigger than allowed.
    #[error("The bundle is over the limit on {limit}: {max}.")]
    TooLarge {
        /// What there is too much of.
        limit: Limit,
        /// The limit as it was given, in the unit of that [`Limits`](crate::Limits) field.
        max: u64,
    },
    /// The input failed: the rest of the bundle will never be known.
    #[error("The bundle could not be read to its end.")]
    Io(#[source] io::Error),
    /// The visitor failed, with the error it returned.
    #[error("The content of the bundle could not be handled.")]
    Visit(#[source] io::Error),
}

fn prefix(entry: Option<&str>) -> String {
    entry.map(|entry| format!("{entry}: ")).unwrap_or_default()
}

impl Fault {
    /// Blames `entry`, unless a layer below knew better.
    pub(crate) fn at(mut self, name: &[u8]) -> Self {
        if let Self::Invalid { entry: entry @ None, .. } = &mut self {
            *entry = Some(printable(name));
        }
        self
    }
}

impl Reason {
    pub(crate) fn at(self, name: &[u8]) -> Fault {
        Fault::from(self).at(name)
    }
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Self {
        Self::Invalid { reason, entry: None }
    }
}

/// A name that goes into answers and logs comes from a stranger: no control characters, and not a kilobyte of it.
fn printable(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name.strip_prefix(b"./").unwrap_or(name));
    let mut shown: String = name.chars().take(256).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown.replace(char::is_control, "\u{fffd}")
}

/// What a bundle can have too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Bytes of the upload.
    Compressed,
    /// Bytes of content.
    Unpacked,
    /// Files and directories.
    Entries,
}

impl Limit {
    /// The identifier that clients see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compressed => "compressed",
            Self::Unpacked => "unpacked",
            Self::Entries => "entries",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compressed => "compressed bytes",
            Self::Unpacked => "unpacked bytes",
            Self::Entries => "entries",
        })
    }
}

macro_rules! reasons {
    ($($variant:ident $id:literal $sentence:literal)+) => {
        /// The rule that a bundle breaks. [`Reason::as_str`] is for programs and never changes; `Display` is a sentence
        /// for people, and may.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $(#[doc = $sentence] $variant,)+
        }

        impl Reason {
            /// Every reason there is.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The identifier that clients see, in `snake_case`.
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
    NotGzip "not_gzip" "The upload is not gzip; a bundle is a gzipped tar."
    GzipCorrupt "gzip_corrupt" "The compressed data is damaged."
    TrailingBytes "trailing_bytes" "Bytes follow the gzip member; a bundle is exactly one."
    Truncated "truncated" "The archive ends before its end marker."
    DataAfterEnd "data_after_end" "Something other than zeros follows the archive's end marker."

    ChecksumMismatch "checksum_mismatch" "A header's checksum is wrong; this is no tar, or a damaged one."
    HeaderInvalid "header_invalid" "A header is in none of the ustar, GNU and V7 formats."
    SizeInvalid "size_invalid" "The size is negative, too large or not a number."
    DirectoryWithContent "directory_with_content" "A directory has content."

    HardLink "hard_link" "This is a hard link; a bundle holds regular files and directories only."
    SymbolicLink "symbolic_link" "This is a symbolic link; a bundle holds regular files and directories only."
    CharacterDevice "character_device" "This is a character device; a bundle holds regular files and directories only."
    BlockDevice "block_device" "This is a block device; a bundle holds regular files and directories only."
    Fifo "fifo" "This is a FIFO; a bundle holds regular files and directories only."
    ContiguousFile "contiguous_file" "This is a contiguous file; a bundle holds regular files and directories only."
    SparseFile "sparse_file" "This is a sparse file; a bundle holds regular files and directories only."
    UnknownType "unknown_type" "The type is unknown; a bundle holds regular files and directories only."

    ExtensionTooLarge "extension_too_large" "An extended header is over 64 KiB."
    ExtensionMalformed "extension_malformed" "An extended header is malformed, or gives the name twice."
    ExtensionMisplaced "extension_misplaced" "An extended header is not directly followed by its entry, or a global one is not first."
    ExtensionKey "extension_key" "An extended header sets more than a name, times, ownership or attributes."
    SizeOverride "size_override" "An extended header sets another size."
    LinkTarget "link_target" "An extended header sets the target of a link."
    NameCharset "name_charset" "An extended header sets a character set; names are UTF-8."

    NameTooLong "name_too_long" "The name is over 1,024 bytes."
    NameNotUtf8 "name_not_utf8" "The name is not UTF-8."
    ControlCharacter "control_character" "The name holds a control character."
    Backslash "backslash" "The name holds a backslash; segments are separated by slashes."
    AbsolutePath "absolute_path" "The name is absolute."
    DotSegment "dot_segment" "The name has a `.` or `..` segment."
    EmptySegment "empty_segment" "The name is empty, has a doubled slash, or is a file's and ends in a slash."
    UnexpectedPath "unexpected_path" "A bundle holds the file svc.json and the directories worker and assets, nothing else."
    Duplicate "duplicate" "The name occurs twice."
    CaseCollision "case_collision" "The name differs only by case from another, or from another's directory."
    FileAndDirectory "file_and_directory" "The name is a file's and a directory's at once."

    ManifestMissing "manifest_missing" "The manifest svc.json is missing."
    ManifestTooLarge "manifest_too_large" "The manifest is over 64 KiB."
    ManifestNotJson "manifest_not_json" "The manifest is not JSON."
    ManifestDuplicateKey "manifest_duplicate_key" "An object in the manifest has a key twice."
    ManifestTooDeep "manifest_too_deep" "The manifest is nested deeper than 64 levels."
    ManifestNul "manifest_nul" "A string in the manifest holds U+0000."
    ManifestNotObject "manifest_not_object" "The manifest is not a JSON object."
    ManifestWrongType "manifest_wrong_type" "In the manifest auth, database, email, ai and storage are booleans; name, main and compatibilityDate are strings."
    MainMissing "main_missing" "The manifest's main (by default worker/index.js) is not a file under worker/ in the bundle."
    NothingToDeploy "nothing_to_deploy" "There is neither worker code nor an asset."
}
