//! The options.

#[derive(clap::Args)]
pub struct Args {
    /// How long each run takes
    #[arg(long, default_value_t = 5)]
    pub(super) seconds: u64,
    /// Runs of each, in turns
    #[arg(long, default_value_t = 3)]
    pub(super) rounds: usize,
    /// Sizes of the zones that are changed, in rrsets; none leaves that part out
    #[arg(long, value_delimiter = ',', num_args = 0.., default_values_t = [10, 1_000, 50_000])]
    pub(super) sizes: Vec<u32>,
    /// Requests at a time
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8])]
    pub(super) connections: Vec<usize>,
    /// How many zones are listed; 0 leaves that part out
    #[arg(long, default_value_t = 10_000)]
    pub(super) zones: u32,
    /// Rrsets of the zone that is read whole; 0 leaves that part out
    #[arg(long, default_value_t = 3_000)]
    pub(super) detail: u32,
    /// Leave PowerDNS as it comes: it rectifies the whole zone after each change
    #[arg(long)]
    pub(super) rectify: bool,
}
