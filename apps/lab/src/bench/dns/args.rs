//! The options of `bench dns`.

#[derive(clap::Args, PartialEq)]
pub struct Args {
    /// The duration of each run
    #[arg(long, default_value_t = 5)]
    pub(super) seconds: u64,
    /// The number of runs per side, alternating
    #[arg(long, default_value_t = 3)]
    pub(super) rounds: usize,
    /// Number of rrsets in each changed zone; an empty list skips this part
    #[arg(long, value_delimiter = ',', num_args = 0.., default_values_t = [10, 1_000, 50_000])]
    pub(super) sizes: Vec<u32>,
    /// Numbers of concurrent requests
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8])]
    pub(super) connections: Vec<usize>,
    /// The number of listed zones; 0 skips this part
    #[arg(long, default_value_t = 10_000)]
    pub(super) zones: u32,
    /// Rrsets in the zone that is read completely; 0 skips this part
    #[arg(long, default_value_t = 3_000)]
    pub(super) detail: u32,
    /// Let PowerDNS rectify the whole zone after each change, which is its default
    #[arg(long)]
    pub(super) rectify: bool,
}
