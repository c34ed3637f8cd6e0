//! Country codes.

use std::str::FromStr;

use kernel::InvalidText;

/// The officially assigned codes of ISO 3166-1 alpha-2, in alphabetical order.
const ASSIGNED: &str = "\
    AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ CA CC \
    CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO FR GA GB GD \
    GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE KG KH \
    KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW \
    MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC \
    SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY \
    UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW";

const MEANING: &str = "an assigned country code of two capital letters (ISO 3166-1 alpha-2)";

/// An assigned country code (ISO 3166-1 alpha-2).
#[derive(Debug, Clone, PartialEq, Eq, diesel::AsExpression, diesel::FromSqlRow)]
#[diesel(sql_type = diesel::sql_types::Text)]
pub struct CountryCode(String);

impl CountryCode {
    /// The two letters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CountryCode {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let is_assigned = text.len() == 2 && ASSIGNED.split(' ').any(|code| code == text);
        if is_assigned { Ok(Self(text.to_owned())) } else { Err(InvalidText::Malformed(MEANING)) }
    }
}

kernel::string_like!(CountryCode);
kernel::string_schema!(CountryCode, |schema| schema
    .format(Some(openapi::SchemaFormat::Custom("country-code".to_owned())))
    .pattern(Some("^[A-Z]{2}$"))
    .description(Some(MEANING))
    .examples(["DE"]));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_assigned_codes_parse() {
        assert_eq!(ASSIGNED.split(' ').count(), 249);
        for code in ["DE", "US", "GB", "AX", "ZW", "XK", "UK", "EU", "ZZ", "de", "D", "DEU", "", "E D", " D"] {
            let is_assigned = matches!(code, "DE" | "US" | "GB" | "AX" | "ZW");
            assert_eq!(code.parse::<CountryCode>().is_ok(), is_assigned, "{code}");
        }
    }
}
