//! Which die holds what.
//!
//! Owns: the split of a model's layers over the dies. Refuses to know: how it is uploaded.
//!
//! Layers stay in order: the front ones on the first die, the back ones with the output on the last. Each die gets the share of the
//! layers' bytes that it reads as fast as the others read theirs (its measured rate), as far as its free memory allows. The
//! output does not count: it comes when the last micro-block has left the layers, and nothing runs beside it.

use crate::backend::{Demand, Load, Place};
use crate::{Error, Result};

/// Bytes that stay free on a die for state, activations and the driver.
const RESERVE: usize = 512 << 20;

/// A reserve is no more than this part of the memory, for small devices.
const RESERVE_PART: usize = 8;

/// A die, as far as the split is concerned.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Free bytes.
    pub free: usize,
    /// Bytes read per second.
    pub rate: f64,
}

/// Layers in order over dies in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Split {
    /// The first layer of each die but the first.
    starts: Vec<usize>,
    /// Layers that every pass goes through.
    layers: usize,
}

impl Split {
    /// Everything on one die.
    pub fn whole() -> Split {
        Split::default()
    }

    /// The die on which something stands.
    pub fn die(&self, place: Place) -> usize {
        match place {
            Place::Input => 0,
            Place::Layer(layer) => self.starts.iter().take_while(|&&start| start <= layer).count(),
            Place::Output => self.starts.len(),
        }
    }

    /// Layers of each die.
    pub fn counts(&self) -> Vec<usize> {
        let edges: Vec<usize> = [0].into_iter().chain(self.starts.iter().copied()).chain([self.layers]).collect();
        edges.windows(2).map(|edge| edge[1].saturating_sub(edge[0])).collect()
    }

    /// The split that was asked for: layers of each die but the last.
    ///
    /// # Errors
    /// If it does not give every die a layer, or does not fit the memory.
    pub fn given(counts: &[usize], demand: &Demand, dies: &[Room]) -> Result<Split> {
        let flag = |text: String| Err(Error::new(text).about("--split"));
        if counts.len() + 1 != dies.len() {
            return flag(format!(
                "expected {} numbers for {} dies, found {}",
                dies.len() - 1,
                dies.len(),
                counts.len()
            ));
        }
        let layers = trunk(demand);
        if counts.contains(&0) || counts.iter().sum::<usize>() >= layers {
            return flag(format!("every die needs at least one of the {layers} layers"));
        }
        let starts = counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        let split = Split { starts: starts.collect(), layers };
        split.fits(demand, dies).map_err(|e| e.about("--split"))?;
        Ok(split)
    }

    /// The split under which all dies take about as long, as far as their memory allows.
    ///
    /// # Errors
    /// If the model fits under none.
    pub fn balanced(demand: &Demand, dies: &[Room]) -> Result<Split> {
        let layers = trunk(demand);
        if dies.len() == 1 || layers < dies.len() {
            let split = Split { starts: (1..dies.len()).map(|die| die.min(layers)).collect(), layers };
            split.fits(demand, dies)?;
            return Ok(split);
        }
        let all: usize = demand.layers.iter().map(|load| load.read).sum();
        let rate: f64 = dies.iter().map(|die| die.rate).sum();
        let mut split = Split { layers, ..Split::default() };
        let mut next = 0;
        for (i, die) in dies[..dies.len() - 1].iter().enumerate() {
            let share = all as f64 * die.rate / rate;
            let (mut read, mut held, start) = (0.0, 0, next);
            // Layers are left for the dies to come, and what they cannot hold is taken here.
            let most = layers - (dies.len() - 1 - i);
            while next < most {
                let load = demand.layers[next];
                let fits = held + load.held <= usable(die);
                let wanted = read + load.read as f64 / 2.0 <= share || !rest_fits(demand, next, &dies[i + 1..]);
                if next > start && !(fits && wanted) {
                    break;
                }
                (read, held, next) = (read + load.read as f64, held + load.held, next + 1);
            }
            split.starts.push(next);
        }
        split.fits(demand, dies)?;
        Ok(split)
    }

    fn fits(&self, demand: &Demand, dies: &[Room]) -> Result<()> {
        let mut held = vec![0; dies.len()];
        for (layer, load) in demand.layers.iter().enumerate() {
            held[self.die(Place::Layer(layer))] += load.held;
        }
        held[self.die(Place::Output)] += demand.output.held;
        for (i, (held, die)) in held.iter().zip(dies).enumerate() {
            if *held > usable(die) {
                let gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
                let text = format!(
                    "the weights need {:.1} GiB on die {i}, of which {:.1} GiB are free beside what state and activations \
                     take: use more dies, a smaller model, or `--device cpu`",
                    gib(*held),
                    gib(usable(die))
                );
                return Err(Error::new(text));
            }
        }
        Ok(())
    }
}

/// Layers that every pass goes through: all but what only drafts.
fn trunk(demand: &Demand) -> usize {
    demand.layers.len() - 1
}

/// Bytes that weights may take.
fn usable(die: &Room) -> usize {
    die.free - RESERVE.min(die.free / RESERVE_PART)
}

/// Whether the layers from `from` on, and the output, fit the dies `dies` taken together.
fn rest_fits(demand: &Demand, from: usize, dies: &[Room]) -> bool {
    let rest: &[Load] = &demand.layers[from..];
    let held: usize = rest.iter().chain([&demand.output]).map(|load| load.held).sum();
    held <= dies.iter().map(usable).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;

    fn demand(layers: usize, each: usize, output: usize) -> Demand {
        let load = |bytes| Load { held: bytes, read: bytes / 4 };
        let mut layers = vec![load(each); layers];
        layers.push(Load::default());
        Demand { layers, output: Load { held: output, read: output } }
    }

    fn dies(n: usize) -> Vec<Room> {
        vec![Room { free: 11 * GIB, rate: 170e9 }; n]
    }

    #[test]
    fn equal_dies_read_equal_shares() {
        let split = Split::balanced(&demand(40, GIB / 4, GIB / 4), &dies(2)).unwrap();
        assert_eq!(split.counts(), [20, 20]);
        assert_eq!(split.die(Place::Layer(19)), 0);
        assert_eq!(split.die(Place::Layer(20)), 1);
        assert_eq!((split.die(Place::Input), split.die(Place::Output)), (0, 1));
    }

    #[test]
    fn memory_goes_before_balance() {
        let mut dies = dies(2);
        dies[1].free = 5 * GIB;
        let split = Split::balanced(&demand(40, GIB / 4, GIB / 4), &dies).unwrap();
        assert!(split.counts()[1] * GIB / 4 + GIB / 4 <= usable(&dies[1]));
        let text = Split::balanced(&demand(40, GIB, GIB), &dies).unwrap_err().to_string();
        assert!(text.contains("GiB"), "{text}");
    }

    #[test]
    fn three_dies_of_which_one_is_slow() {
        let mut dies = dies(3);
        dies[0].rate /= 4.0;
        let split = Split::balanced(&demand(36, GIB / 8, GIB / 16), &dies).unwrap();
        let counts = split.counts();
        assert!(counts[0] < counts[1] / 2, "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), 36);
    }

    #[test]
    fn a_given_split_is_taken_or_refused_by_name() {
        let demand = demand(8, GIB / 4, GIB / 4);
        assert_eq!(Split::given(&[3], &demand, &dies(2)).unwrap().counts(), [3, 5]);
        for wrong in [&[][..], &[0], &[8], &[1, 2]] {
            let text = Split::given(wrong, &demand, &dies(2)).unwrap_err().to_string();
            assert!(text.starts_with("--split"), "{text}");
        }
    }

    #[test]
    fn what_only_drafts_stands_with_the_last_layers() {
        let split = Split::balanced(&demand(8, GIB / 4, GIB / 4), &dies(2)).unwrap();
        assert_eq!(split.die(Place::Layer(8)), 1);
    }
}
