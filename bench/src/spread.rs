//! Summaries of several samples.

/// The median and range of some samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// The median. If the number of samples is even, this is the mean of the middle two.
    pub(crate) median: f64,
    /// The minimum.
    pub(crate) min: f64,
    /// The maximum.
    pub(crate) max: f64,
}

impl Spread {
    /// Summarizes samples. Returns `None` for an empty list.
    pub(crate) fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let (&min, &max) = (samples.first()?, samples.last()?);
        let upper = samples.len() / 2;
        let lower = (samples.len() - 1) / 2;
        Some(Self { median: (samples[lower] + samples[upper]) / 2.0, min, max })
    }
}

/// Returns the geometric mean of some ratios or times. It is `NaN` if there are none.
pub(crate) fn geometric_mean(of: &[f64]) -> f64 {
    (of.iter().map(|value| value.ln()).sum::<f64>() / of.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_of_ratios_weighs_half_and_double_alike() {
        assert!((geometric_mean(&[0.5, 2.0]) - 1.0).abs() < 1e-12);
        assert!((geometric_mean(&[2.0, 4.0, 8.0]) - 4.0).abs() < 1e-12);
        assert!(geometric_mean(&[]).is_nan());
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Spread::of(vec![]), None);
        assert_eq!(Spread::of(vec![3.0]), Some(Spread { median: 3.0, min: 3.0, max: 3.0 }));
        assert_eq!(Spread::of(vec![9.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 9.0 }));
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 9.0]), Some(Spread { median: 3.0, min: 1.0, max: 9.0 }));
    }
}
