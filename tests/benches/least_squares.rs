//! A straight line through measured points.

use std::fmt;

/// The line `base + slope * x` with the least squares of the residuals.
pub(crate) struct Fit {
    base: f64,
    slope: f64,
    /// The share of the variance that the line explains.
    r_squared: f64,
    /// What is measured less what the line has, for each point.
    residuals: Vec<f64>,
}

impl Fit {
    /// The line through some points with different `x`.
    pub(crate) fn of(points: &[(f64, f64)]) -> Self {
        let count = points.iter().map(|_| 1.0).sum::<f64>();
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let covariance: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let variance = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
        let slope = covariance / variance(&mut points.iter().map(|(x, _)| x - mean_x));
        let base = mean_y - slope * mean_x;
        let residuals: Vec<f64> = points.iter().map(|(x, y)| y - base - slope * x).collect();
        let unexplained = variance(&mut residuals.iter().copied());
        let r_squared = 1.0 - unexplained / variance(&mut points.iter().map(|(_, y)| y - mean_y));
        Self { base, slope, r_squared, residuals }
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let residuals: Vec<String> =
            self.residuals.iter().map(|residual| format!("{residual:+.0}")).collect();
        let Self { base, slope, r_squared, .. } = self;
        write!(
            f,
            "{base:.0} + {slope:.3} per pod moved, R² = {r_squared:.4}, residuals {}",
            residuals.join(", ")
        )
    }
}
