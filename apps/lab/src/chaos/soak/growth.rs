//! The memory and the descriptors of the programs while the workload runs without faults.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::rig::{Nodes, Program, Rig};
use crate::bench::run::percentile;
use crate::usage;

/// The longest duration of a reading.
const MAX_READING: Duration = Duration::from_secs(30);
/// The interval of the samples of a reading.
const INTERVAL: Duration = Duration::from_secs(1);
/// The permitted growth of memory.
const MAX_GROWTH: f64 = 1.1;
/// The permitted number of additional descriptors and processes: the connections that are open at a time differ.
const MAX_MORE: usize = 16;

/// The resources of a program during a reading.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// The median of the resident memory in MB.
    memory: f64,
    /// The smallest number of descriptors. A leak also raises the minimum.
    descriptors: usize,
    /// The smallest number of processes below the program.
    processes: usize,
}

/// The resources of a program at the beginning and at the end.
pub struct Growth {
    program: Program,
    first: Reading,
    last: Reading,
}

/// Measures the programs after the first half of this time, and at its end.
pub async fn measure(rig: &Rig, nodes: &Nodes, calm: Duration) -> Result<Vec<Growth>> {
    let reading = (calm / 4).min(MAX_READING);
    sleep(calm / 2 - reading).await;
    let first = read(rig, nodes, reading).await?;
    sleep(calm / 2 - reading).await;
    let last = read(rig, nodes, reading).await?;
    let growth = Program::ALL.into_iter().zip(first.into_iter().zip(last));
    Ok(growth.map(|(program, (first, last))| Growth { program, first, last }).collect())
}

/// Returns a reading of each program.
async fn read(rig: &Rig, nodes: &Nodes, duration: Duration) -> Result<Vec<Reading>> {
    let mut samples: [Vec<Reading>; 4] = Default::default();
    for _ in 0..duration.as_secs().max(1) {
        for (program, samples) in Program::ALL.into_iter().zip(&mut samples) {
            let process = rig.program(nodes, program).pid();
            let (memory, _) = usage::memory(process)?;
            let (descriptors, processes) = (usage::descriptors(process)?, usage::descendants(process)?.len());
            samples.push(Reading { memory, descriptors, processes });
        }
        sleep(INTERVAL).await;
    }
    Ok(samples.into_iter().map(|samples| Reading::of(&samples)).collect())
}

impl Reading {
    fn of(samples: &[Self]) -> Self {
        let mut memory: Vec<f64> = samples.iter().map(|sample| sample.memory).collect();
        memory.sort_by(f64::total_cmp);
        let smallest = |count: fn(&Self) -> usize| samples.iter().map(count).min().unwrap_or_default();
        Self {
            memory: percentile(&memory, 50),
            descriptors: smallest(|sample| sample.descriptors),
            processes: smallest(|sample| sample.processes),
        }
    }
}

impl Growth {
    /// Returns whether the program neither grew nor leaked descriptors or processes.
    pub fn is_bounded(&self) -> bool {
        let Self { first, last, .. } = self;
        last.memory <= first.memory * MAX_GROWTH
            && last.descriptors <= first.descriptors + MAX_MORE
            && last.processes <= first.processes + MAX_MORE
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, first, last } = self;
        write!(
            f,
            "{program:?} {:.1} → {:.1} MB, {} → {} descriptors",
            first.memory, last.memory, first.descriptors, last.descriptors
        )?;
        if first.processes + last.processes > 0 {
            write!(f, ", {} → {} processes", first.processes, last.processes)?;
        }
        Ok(())
    }
}
