//! What a pass costs on this machine, by its rows: measured while running.
//!
//! Owns: the estimate. Refuses to know: clocks; times are handed in.
//!
//! A pass of n rows is expected to take `t(1) + jump + slope·(n - 1)`, the jump from two rows on; each number of rows
//! that was measured often enough goes by its own mean. A machine that slows down, or stops doing so, does it for passes
//! of every length: its speed is followed apart, so that one length tells of all others. Before anything but prompts was
//! measured, the slope is that of the prompt's rows, which have no logits and are a little cheaper.

/// What one more pass leaves of the earlier ones of as many rows: a memory of about 64 passes.
const MEMORY: f64 = 1.0 - 1.0 / 64.0;
/// A pass counts as at most so many times the mean of its like: one that the system interrupted says little.
const OUTLIER: f64 = 1.5;
/// What one more pass of any length leaves of the weight of passes with a block.
const STALE: f64 = 1.0 - 1.0 / 32.0;
/// A length that was measured so often tells how fast the machine is at present...
const KNOWN: f64 = 4.0;
/// ...over about so many passes.
const PACE: f64 = 5.0;
/// The first so many passes are forgotten once one is faster by this factor.
const COLD: f64 = 3.0;
const WARMER: f64 = 1.2;
/// Passes that the line through all numbers of rows weighs beside a number's own mean.
const LINE: f64 = 4.0;
/// A row of a block costs so much more than one of a prompt: its logits.
const LOGITS: f64 = 1.3;
/// The slope, in passes of one row, while nothing is known.
const SLOPE: f64 = 0.25;
/// Rows up to which passes are told apart.
const ROWS: usize = 128;
/// Rows up to which the curve is always drawn.
const FIRST: usize = 24;

/// A fading mean.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    /// 0 before the first pass.
    value: f64,
    /// Passes, older ones fading.
    weight: f64,
}

impl Mean {
    fn learn(&mut self, value: f64) {
        // The first pass of its kind touches memory that no other has touched; the next ones say more.
        if self.weight < COLD && value * WARMER < self.value {
            *self = Mean::default();
        }
        let value = if self.weight >= 2.0 { value.min(OUTLIER * self.value) } else { value };
        self.weight = self.weight * MEMORY + 1.0;
        // One that is known moves slowly: what is common to all lengths is the machine's speed.
        let share = if self.weight > KNOWN { 1.0 - MEMORY } else { 1.0 / self.weight };
        self.value += share * (value - self.value);
    }
}

/// Seconds of passes, by rows.
#[derive(Debug, Clone)]
pub struct Costs {
    /// By rows, from 1 on.
    seen: Vec<Mean>,
    /// How much longer passes take at present than `seen` has it.
    slowness: f64,
    /// Seconds of one more row of a prompt.
    prompt: Option<f64>,
    /// By rows, from 1 on; empty until a pass was measured. Behind its end each row takes `slope` more.
    curve: Vec<f64>,
    slope: f64,
}

impl Costs {
    /// Nothing measured.
    pub fn new() -> Costs {
        Costs { seen: vec![Mean::default(); ROWS], slowness: 1.0, prompt: None, curve: Vec::new(), slope: 0.0 }
    }

    /// A pass of `rows` rows, with their logits, took `seconds`.
    pub fn learn(&mut self, rows: usize, seconds: f64) {
        // What was measured long ago, perhaps while something else ran, gives way to the prompt's rows: so a length that
        // seemed too dear is tried again.
        self.seen[1..].iter_mut().for_each(|mean| mean.weight *= STALE);
        let expected = self.curve.get(rows - 1).copied().filter(|_| rows > 1);
        if let Some(mean) = self.seen.get_mut(rows - 1) {
            if mean.weight >= KNOWN {
                let slower = (seconds / mean.value).clamp(self.slowness / OUTLIER, self.slowness * OUTLIER);
                self.slowness += (slower - self.slowness) / PACE;
            }
            let seconds = seconds / self.slowness;
            mean.learn(expected.map_or(seconds, |expected| seconds.min(OUTLIER * expected)));
            self.draw();
        }
    }

    /// A pass over `rows` rows of a prompt took `seconds`.
    pub fn learn_prompt(&mut self, rows: usize, seconds: f64) {
        // Few rows say more about the pass than about its rows.
        if rows >= 32 {
            let row = seconds / rows as f64;
            self.prompt = Some(self.prompt.map_or(row, |best| best.min(row)));
        }
    }

    /// Seconds of a pass of `rows` rows; nothing until a pass was measured.
    pub fn pass(&self, rows: usize) -> Option<f64> {
        let beyond = rows.saturating_sub(self.curve.len());
        let seconds = self.curve.get(rows - 1).unwrap_or(self.curve.last()?) + self.slope * beyond as f64;
        Some(seconds * self.slowness)
    }

    /// Redraws the curve.
    fn draw(&mut self) {
        let measured = || self.seen.iter().enumerate().filter(|(_, mean)| mean.weight > 0.0);
        let Some((fewest, mean)) = measured().next() else {
            return;
        };
        let slope = |one: f64| self.prompt.map_or(SLOPE * one, |row| (LOGITS * row / self.slowness).min(one));
        // Without a pass of one row it is as if the line went on to the left.
        let one = match fewest {
            0 => mean.value,
            more => mean.value / (1.0 + more as f64 * SLOPE),
        };
        let prior = slope(one);
        // Least squares for jump and slope, drawn to no jump and the prior slope by passes of two and eight rows.
        let (mut n, mut x, mut xx, mut y, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let mut point = |weight: f64, rows: f64, seconds: f64| {
            n += weight;
            x += weight * rows;
            xx += weight * rows * rows;
            y += weight * seconds;
            xy += weight * rows * seconds;
        };
        point(1.0, 1.0, prior);
        point(1.0, 7.0, 7.0 * prior);
        measured().skip_while(|(more, _)| *more == 0).for_each(|(more, mean)| {
            point(mean.weight, more as f64, mean.value - one);
        });
        let slope = ((n * xy - x * y) / (n * xx - x * x)).max(0.0);
        let jump = (y - slope * x) / n;
        let line = |more: usize| if more == 0 { one } else { one + jump + slope * more as f64 };
        let mut least: f64 = 0.0;
        // Longer passes than have been tried go by the line.
        let drawn = (2 * (1 + measured().map(|(more, _)| more).max().unwrap_or(0))).clamp(FIRST, ROWS);
        let blend = |(more, mean): (usize, &Mean)| {
            let seconds = (mean.weight * mean.value + LINE * line(more)) / (mean.weight + LINE);
            // More rows never take less time; where they seem to, it is noise.
            least = least.max(seconds);
            least
        };
        self.slope = slope;
        self.curve = self.seen.iter().enumerate().take(drawn).map(blend).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn true_cost(rows: usize) -> f64 {
        if rows == 1 { 1.0 } else { 1.25 + 0.15 * rows as f64 }
    }

    fn near(costs: &Costs, rows: usize, tolerance: f64) {
        let (found, expected) = (costs.pass(rows).unwrap(), true_cost(rows));
        assert!((found / expected - 1.0).abs() < tolerance, "{rows} rows: {found}, not {expected}");
    }

    #[test]
    fn nothing_is_known_before_a_pass_was_measured() {
        let mut costs = Costs::new();
        costs.learn_prompt(200, 20.0);
        assert_eq!(costs.pass(1), None);
    }

    #[test]
    fn a_prompt_and_one_row_tell_much_of_the_rest() {
        let mut costs = Costs::new();
        costs.learn_prompt(200, 200.0 * 0.13);
        costs.learn(1, 1.0);
        for rows in [4, 8, 16, 32] {
            near(&costs, rows, 0.25);
        }
    }

    #[test]
    fn measured_numbers_of_rows_tell_of_the_others() {
        let mut costs = Costs::new();
        for _ in 0..20 {
            for rows in [1, 3, 5, 9, 17] {
                costs.learn(rows, true_cost(rows));
            }
        }
        for rows in [1, 2, 3, 4, 8, 12, 17, 30, 64] {
            near(&costs, rows, 0.05);
        }
    }

    #[test]
    fn the_curve_never_falls_and_an_interruption_is_no_cost() {
        let mut costs = Costs::new();
        for i in 0..50 {
            costs.learn(1, 1.0);
            costs.learn(4, if i % 10 == 9 { 100.0 } else { 1.85 });
            costs.learn(6, 1.7);
        }
        near(&costs, 4, 0.15);
        let curve: Vec<f64> = (1..=200).map(|rows| costs.pass(rows).unwrap()).collect();
        assert!(curve.is_sorted(), "{curve:?}");
    }

    #[test]
    fn a_machine_that_slows_down_is_followed() {
        let mut costs = Costs::new();
        (0..100).for_each(|_| costs.learn(1, 1.0));
        (0..100).for_each(|_| costs.learn(1, 3.0));
        assert!(costs.pass(1).unwrap() > 2.8);
    }

    #[test]
    fn one_length_tells_how_fast_the_machine_is_for_all() {
        let mut costs = Costs::new();
        costs.learn_prompt(100, 100.0 * 0.13);
        for _ in 0..20 {
            for rows in [1, 3, 6] {
                costs.learn(rows, 2.0 * true_cost(rows));
            }
        }
        (0..40).for_each(|_| costs.learn(1, true_cost(1)));
        for rows in [1, 2, 3, 6, 9] {
            near(&costs, rows, 0.08);
        }
    }
}
