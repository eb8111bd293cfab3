//! Do draws follow the weights, and do orders look like any other? Seeds are fixed, so a test passes always or never.
//!
//! Tolerance: a count or a sum may be 5 standard deviations from its expectation, and a chi-square sum 5 standard
//! deviations above, after Wilson and Hilferty's normal approximation. A sound plan misses that about once in a million.

use drt_sampler::{Permutation, SamplingPlan, Weights};

const SIGMAS: f64 = 5.0;

fn draw(plan: &SamplingPlan, position: u64, len: usize) -> Vec<u64> {
    let mut rows = vec![0; len];
    plan.fill(position, &mut rows);
    rows
}

fn count(cells: usize, values: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut counts = vec![0; cells];
    for value in values {
        counts[value as usize] += 1;
    }
    counts
}

#[track_caller]
fn assert_fits(counts: &[u64], shares: impl IntoIterator<Item = f64>) {
    let total: u64 = counts.iter().sum();
    let chi_square: f64 = counts
        .iter()
        .zip(shares)
        .map(|(found, share)| {
            let expected = share * total as f64;
            assert!(expected >= 5.0, "too few draws for this test");
            (*found as f64 - expected).powi(2) / expected
        })
        .sum();
    let freedom = (counts.len() - 1) as f64;
    let variance = 2.0 / (9.0 * freedom);
    let sigmas = ((chi_square / freedom).cbrt() - (1.0 - variance)) / variance.sqrt();
    assert!(sigmas < SIGMAS, "chi-square {chi_square:.1} with {freedom} degrees of freedom: {sigmas:.1} sigmas");
}

#[track_caller]
fn assert_even(counts: &[u64]) {
    assert_fits(counts, std::iter::repeat_n(1.0 / counts.len() as f64, counts.len()));
}

#[track_caller]
fn assert_near(found: f64, expected: f64, variance: f64) {
    let sigmas = (found - expected) / variance.sqrt();
    assert!(sigmas.abs() < SIGMAS, "{found} instead of {expected}: {sigmas:.1} sigmas");
}

/// The correlation of successive values, in standard deviations of that of independent ones.
fn serial_correlation_sigmas(values: &[u64]) -> f64 {
    let len = values.len() as f64;
    let mean = values.iter().map(|value| *value as f64).sum::<f64>() / len;
    let deviations: Vec<f64> = values.iter().map(|value| *value as f64 - mean).collect();
    let variance: f64 = deviations.iter().map(|x| x * x).sum();
    deviations.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / variance * len.sqrt()
}

/// How often the direction changes between rising and falling: (2n - 4) / 3 on average, variance (16n - 29) / 90.
fn turning_points(values: &[u64]) -> (f64, f64, f64) {
    let turns = values.windows(3).filter(|v| (v[0] < v[1]) != (v[1] < v[2])).count();
    let len = values.len() as f64;
    (turns as f64, (2.0 * len - 4.0) / 3.0, (16.0 * len - 29.0) / 90.0)
}

/// Runs above and below the median (Wald and Wolfowitz, 1940): how many, how many are expected, and the variance.
fn runs(values: &[u64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    let (_, median, _) = sorted.select_nth_unstable(values.len() / 2);
    let above: Vec<bool> = values.iter().map(|value| *value >= *median).collect();
    let high = above.iter().filter(|above| **above).count() as f64;
    let len = above.len() as f64;
    let pairs = 2.0 * high * (len - high);
    let variance = pairs * (pairs - len) / (len * len * (len - 1.0));
    let changes = above.windows(2).filter(|pair| pair[0] != pair[1]).count();
    (changes as f64 + 1.0, pairs / len + 1.0, variance)
}

#[test]
fn no_mode_has_runs_or_correlations() {
    let weights: Vec<f64> = (0..5000).map(|row| 1.0 + f64::from(row * row % 101)).collect();
    let weighted = Weights::new(&weights).unwrap();
    let population = 200_003;
    let plans = [
        ("uniform", SamplingPlan::uniform(population, 21).unwrap()),
        ("weighted", SamplingPlan::weighted(weighted, 22)),
        ("permutation", SamplingPlan::permutation(population, 23).unwrap()),
    ];
    for (name, plan) in plans {
        for position in [0, 5 * population, 1_000_000_000_000 / population * population] {
            let values = draw(&plan, position, population as usize);
            let (found, expected, variance) = runs(&values);
            assert!(
                ((found - expected) / variance.sqrt()).abs() < SIGMAS,
                "{name}: {found} runs instead of {expected}"
            );
            let sigmas = serial_correlation_sigmas(&values);
            assert!(sigmas.abs() < SIGMAS, "{name}: {sigmas:.1} sigmas of serial correlation");
        }
    }
}

#[test]
fn places_of_an_order_hold_all_parts_of_the_table_equally_often() {
    // Within an epoch rows exclude one another, so each row of cells is compared over many epochs at one place.
    for population in [257_u64, 1000, 65_537, u64::from(u32::MAX)] {
        let order = Permutation::new(population, 29).unwrap();
        for place in [0, 1, population / 2, population - 1] {
            let rows = (0..20_000).map(|epoch| order.row(epoch, place));
            let cell = |row: u64| (u128::from(row) * 16 / u128::from(population)) as u64;
            let shares = (0..16_u128).map(|cell| {
                let begin = |cell: u128| (cell * u128::from(population)).div_ceil(16);
                (begin(cell + 1) - begin(cell)) as f64 / population as f64
            });
            assert_fits(&count(16, rows.map(cell)), shares);
        }
    }
}

#[test]
fn the_runs_test_sees_runs() {
    let rising: Vec<u64> = (0..1000).collect();
    let turns: Vec<u64> = (0..1000).map(|at| at % 2).collect();
    for values in [rising, turns] {
        let (found, expected, variance) = runs(&values);
        assert!(((found - expected) / variance.sqrt()).abs() > SIGMAS);
    }
}

#[test]
fn uniform_draws_are_even() {
    for (population, seed) in [(2, 1), (7, 2), (100, 3), (1000, 4)] {
        let plan = SamplingPlan::uniform(population, seed).unwrap();
        for position in [0, 1 << 63] {
            assert_even(&count(population as usize, draw(&plan, position, 200_000)));
        }
    }
}

#[test]
fn uniform_draws_reach_all_of_the_largest_population() {
    let plan = SamplingPlan::uniform(u64::from(u32::MAX), 5).unwrap();
    let rows = draw(&plan, 0, 200_000);
    assert_even(&count(256, rows.iter().map(|row| row >> 24)));
    assert_even(&count(256, rows.iter().map(|row| row & 255)));
}

#[test]
fn weighted_draws_follow_the_weights() {
    for (rows, seed) in [(3_usize, 1), (50, 2), (400, 3)] {
        let weights: Vec<f64> = (0..rows).map(|row| 1.0 + (row * row % 37) as f64).collect();
        let sum: f64 = weights.iter().sum();
        let plan = SamplingPlan::weighted(Weights::new(&weights).unwrap(), seed);
        let counts = count(rows, draw(&plan, 12_345, 300_000));
        assert_fits(&counts, weights.iter().map(|weight| weight / sum));
    }
}

#[test]
fn successive_draws_are_independent() {
    let weights: Vec<f64> = (1..=16).map(f64::from).collect();
    let plan = SamplingPlan::weighted(Weights::new(&weights).unwrap(), 1);
    let rows = draw(&plan, 0, 200_000);
    for lag in [1, 2, 3, 4, 16] {
        let pairs = rows.chunks_exact(2 * lag).flat_map(|rows| rows[..lag].iter().zip(&rows[lag..]));
        let counts = count(256, pairs.map(|(a, b)| 16 * a + b));
        assert_fits(&counts, weights.iter().flat_map(|a| weights.iter().map(move |b| a * b / 136_f64.powi(2))));
    }
    let wide = draw(&SamplingPlan::uniform(u64::from(u32::MAX), 2).unwrap(), 0, 200_000);
    assert!(serial_correlation_sigmas(&wide).abs() < SIGMAS);
    let (turns, expected, variance) = turning_points(&wide);
    assert_near(turns, expected, variance);
}

#[test]
fn neighbouring_seeds_are_independent() {
    let of = |seed| draw(&SamplingPlan::uniform(16, seed).unwrap(), 0, 100_000);
    for (a, b) in [(7, 8), (0, 1 << 63), (u64::MAX, u64::MAX - 1)] {
        assert_even(&count(256, of(a).iter().zip(of(b)).map(|(a, b)| 16 * a + b)));
    }
}

#[test]
fn three_heavy_rows_outweigh_two_to_the_24_light_ones() {
    let population = (1 << 24) + 10;
    let heavy_from = population - 3;
    let weights = (0..population).map(|row| if row < heavy_from { 1e-12 } else { 1.0 });
    let plan = SamplingPlan::weighted(Weights::from_values(weights).unwrap(), 7);
    let rows = draw(&plan, 0, 10_000);
    let heavy: Vec<u64> = rows.into_iter().filter(|row| *row >= heavy_from).map(|row| row - heavy_from).collect();
    assert!(heavy.len() >= 9_990, "{} of 10,000 draws", heavy.len());
    assert_even(&count(3, heavy));
}

#[test]
fn half_the_weight_on_half_the_rows_of_two_to_the_22() {
    let population = 1 << 22;
    let weights = (0..population).map(|row| if row < population / 2 { 2.0 } else { 1.0 });
    let plan = SamplingPlan::weighted(Weights::from_values(weights).unwrap(), 7);
    let upper = draw(&plan, 0, 100_000).into_iter().filter(|row| *row >= population / 2).count();
    assert_near(upper as f64, 100_000.0 / 3.0, 100_000.0 * 2.0 / 9.0);
}

#[test]
fn weights_of_all_magnitudes_share_a_table() {
    let weights: Vec<f64> = (-300..=300).map(|exponent| 10_f64.powi(exponent)).collect();
    let plan = SamplingPlan::weighted(Weights::new(&weights).unwrap(), 7);
    let rows = draw(&plan, 0, 200_000);
    assert!(rows.iter().all(|row| *row > 580), "1e-20 of all draws may be lower");
    let counts = count(4, rows.iter().map(|row| 600 - row.max(&597)));
    assert_fits(&counts, [0.9, 0.09, 0.009, 0.001]);
}

#[test]
fn weights_whose_sum_overflows_are_drawn_from() {
    let even = SamplingPlan::weighted(Weights::new(&[1e308; 5]).unwrap(), 7);
    assert_even(&count(5, draw(&even, 0, 100_000)));
    let weights = [1e308, 1.7e308, 1e308, 0.5e308, 1e308];
    let uneven = SamplingPlan::weighted(Weights::new(&weights).unwrap(), 7);
    assert_fits(&count(5, draw(&uneven, 0, 100_000)), weights.map(|weight| weight / 1e308 / 5.2));
}

#[test]
fn every_order_of_a_small_population_is_equally_likely() {
    for (population, orders) in [(2, 2), (3, 6), (4, 24), (5, 120), (6, 720)] {
        let plan = SamplingPlan::permutation(population, 11).unwrap();
        let epochs = 200 * orders;
        let rows = draw(&plan, 0, epochs * population as usize);
        // the number of an order: how many later rows are smaller, as digits in the factorial system
        let number = |order: &[u64]| {
            let smaller = |i: usize| order[i + 1..].iter().filter(|row| **row < order[i]).count() as u64;
            (0..order.len()).fold(0, |number, i| number * (order.len() - i) as u64 + smaller(i))
        };
        assert_even(&count(orders, rows.chunks_exact(population as usize).map(number)));
    }
}

#[test]
fn orders_are_even_and_odd_equally_often() {
    for population in [9, 25, 256, 257, 272, 288, 289, 290] {
        let plan = SamplingPlan::permutation(population, 11).unwrap();
        let rows = draw(&plan, 0, 600 * population as usize);
        let odd = rows.chunks_exact(population as usize).filter(|order| is_odd(order)).count();
        assert_near(odd as f64, 300.0, 150.0);
    }
}

fn is_odd(order: &[u64]) -> bool {
    let mut seen = vec![false; order.len()];
    let mut cycles = 0;
    for start in 0..order.len() {
        if !seen[start] {
            cycles += 1;
        }
        let mut place = start;
        while !std::mem::replace(&mut seen[place], true) {
            place = order[place] as usize;
        }
    }
    (order.len() - cycles) % 2 == 1
}

#[test]
fn places_rows_and_neighbours_are_unrelated() {
    for (population, epochs) in [(200_u64, 1000), (257, 1000), (300, 1000), (1024, 300), (5000, 60)] {
        let order = Permutation::new(population, 13).unwrap();
        let (mut places, mut neighbours, mut epochs_apart, mut far) = (vec![0; 400], vec![], vec![], vec![]);
        let width = population.isqrt() as usize; // about where the Feistel network keeps one half of the place
        let mut previous = vec![0; population as usize];
        order.fill(0, 0, &mut previous);
        for epoch in 1..=epochs {
            let mut rows = vec![0; population as usize];
            order.fill(epoch, 0, &mut rows);
            for (place, row) in (0..).zip(&rows) {
                places[(place * 20 / population * 20 + row * 20 / population) as usize] += 1;
            }
            let apart = |a: &u64, b: &u64| (b + population - a) % population * 50 / population;
            neighbours.extend(rows.iter().zip(&rows[1..]).map(|(a, b)| apart(a, b)));
            far.extend(rows.iter().zip(&rows[width..]).map(|(a, b)| apart(a, b)));
            epochs_apart.extend(previous.iter().zip(&rows).map(|(a, b)| apart(a, b)));
            previous = rows;
        }
        let cell = |x: u64, cells: u64| ((x + 1) * population).div_ceil(cells) - (x * population).div_ceil(cells);
        let twentieths: Vec<f64> = (0..20).map(|x| cell(x, 20) as f64 / population as f64).collect();
        assert_fits(&places, twentieths.iter().flat_map(|a| twentieths.iter().map(move |b| a * b)));
        let fiftieths: Vec<f64> = (0..50).map(|x| cell(x, 50) as f64 / population as f64).collect();
        assert_fits(&count(50, epochs_apart), fiftieths);
        // neighbours in one order are never 0 apart
        let others = (0..50).map(|x| (cell(x, 50) - u64::from(x == 0)) as f64 / (population - 1) as f64);
        assert_fits(&count(50, neighbours), others.clone());
        assert_fits(&count(50, far), others);
    }
}

#[test]
fn a_long_order_has_no_trend() {
    for population in [65_536, 100_003] {
        let rows = draw(&SamplingPlan::permutation(population, 17).unwrap(), population, population as usize);
        assert!(serial_correlation_sigmas(&rows).abs() < SIGMAS);
        let (turns, expected, variance) = turning_points(&rows);
        assert_near(turns, expected, variance);
        let rises = rows.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert_near(rises as f64, (population - 1) as f64 / 2.0, (population + 1) as f64 / 12.0);
        let fixed = (0..).zip(&rows).filter(|(place, row)| place == *row).count();
        assert!(fixed < 9, "{fixed} rows stay where they are; 1 is expected");
    }
}
