//! Record types.

kernel::words! {
    /// The types that a zone may hold, with their names in presentation format.
    pub enum RecordType {
        A = "A",
        Aaaa = "AAAA",
        Caa = "CAA",
        Cname = "CNAME",
        Https = "HTTPS",
        Loc = "LOC",
        Mx = "MX",
        Naptr = "NAPTR",
        Ns = "NS",
        Ptr = "PTR",
        /// Only the platform writes SOA records.
        Soa = "SOA",
        Srv = "SRV",
        Sshfp = "SSHFP",
        Svcb = "SVCB",
        Tlsa = "TLSA",
        Txt = "TXT",
        Uri = "URI",
    } example A
}

impl RecordType {
    /// Returns the number of the type (IANA, "Resource Record (RR) TYPEs").
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Ns => 2,
            Self::Cname => 5,
            Self::Soa => 6,
            Self::Ptr => 12,
            Self::Mx => 15,
            Self::Txt => 16,
            Self::Aaaa => 28,
            Self::Loc => 29,
            Self::Srv => 33,
            Self::Naptr => 35,
            Self::Sshfp => 44,
            Self::Tlsa => 52,
            Self::Svcb => 64,
            Self::Https => 65,
            Self::Uri => 256,
            Self::Caa => 257,
        }
    }

    /// Parses the name of a type in any case, or `TYPE15` (RFC 3597 section 5).
    #[must_use]
    pub fn from_mnemonic(text: &str) -> Option<Self> {
        let name = text.to_ascii_uppercase();
        let code = name.strip_prefix("TYPE").filter(|code| code.bytes().all(|byte| byte.is_ascii_digit()));
        let code = code.and_then(|code| code.parse().ok());
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name || Some(kind.code()) == code)
    }
}
