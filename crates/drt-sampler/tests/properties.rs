//! What holds for every plan, every table and every window.

use std::sync::Arc;

use drt_sampler::{MAX_POPULATION, Permutation, SampleStream, SamplerError, SamplingPlan, TABLE_ENTRY_BYTES, Weights};
use proptest::collection::vec;
use proptest::prelude::*;

fn positive() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => 0.001..1000.0,
        1 => (1..20_u32).prop_map(f64::from),
        1 => (1..f64::INFINITY.to_bits()).prop_map(f64::from_bits),
    ]
}

fn plans() -> impl Strategy<Value = SamplingPlan> {
    let population = || prop_oneof![1..5_u64, 1..600_u64, 1..=MAX_POPULATION];
    prop_oneof![
        population().prop_map(|population| SamplingPlan::cyclic(population).unwrap()),
        (population(), any::<u64>()).prop_map(|(population, seed)| SamplingPlan::uniform(population, seed).unwrap()),
        (population(), any::<u64>())
            .prop_map(|(population, seed)| SamplingPlan::permutation(population, seed).unwrap()),
        (vec(positive(), 1..300), any::<u64>())
            .prop_map(|(weights, seed)| SamplingPlan::weighted(Weights::new(&weights).unwrap(), seed)),
    ]
}

fn positions() -> impl Strategy<Value = u64> {
    prop_oneof![0..2000_u64, any::<u64>().prop_map(|position| position.min(u64::MAX - 2000))]
}

fn rows(plan: &SamplingPlan, position: u64, len: usize) -> Vec<u64> {
    let mut rows = vec![u64::MAX; len];
    plan.fill(position, &mut rows);
    rows
}

fn entries(weights: &Weights) -> impl Iterator<Item = (u64, u32)> {
    weights.table().unwrap().chunks_exact(TABLE_ENTRY_BYTES).map(|entry| {
        let (threshold, alias) = entry.split_at(8);
        (u64::from_le_bytes(threshold.try_into().unwrap()), u32::from_le_bytes(alias.try_into().unwrap()))
    })
}

/// What each row gets, in units of 2^-64 of a bucket, added up from the table.
fn masses(weights: &Weights) -> Vec<u128> {
    let mut masses = vec![0; weights.len() as usize];
    for (row, (threshold, alias)) in entries(weights).enumerate() {
        masses[row] += u128::from(threshold);
        masses[alias as usize] += (1 << 64) - u128::from(threshold);
    }
    masses
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fill_gives_the_row_of_every_position(plan in plans(), position in positions(), len in 0..700_usize) {
        let rows = rows(&plan, position, len);
        prop_assert!(rows.iter().all(|row| *row < plan.population()));
        for (i, row) in (0..).zip(&rows).step_by(1 + len / 40) {
            prop_assert_eq!(*row, plan.row(position + i));
        }
    }

    #[test]
    fn windows_joined_are_the_stream(plan in plans(), position in positions(), lens in vec(0..300_usize, 1..6)) {
        let whole = rows(&plan, position, lens.iter().sum());
        let mut stream = SampleStream::at(plan, position);
        let mut joined = Vec::new();
        for len in lens {
            let (start, len) = stream.next_window(len as u64).unwrap();
            joined.extend(rows(stream.plan(), start, len as usize));
        }
        prop_assert_eq!(joined, whole);
    }

    #[test]
    fn slices_of_any_division_are_the_stream(
        plan in plans(),
        position in positions(),
        (ranks, workers, batch) in (1..5_usize, 1..4_usize, 1..40_usize),
        steps in 1..12_usize,
    ) {
        let stride = ranks * batch;
        let whole = rows(&plan, position, steps * stride);
        let mut joined = vec![u64::MAX; whole.len()];
        // Whoever comes first: ranks and workers of each, the last ones before the first ones.
        for (rank, worker) in (0..ranks).flat_map(|rank| (0..workers).map(move |worker| (rank, worker))).rev() {
            for step in (worker..steps).step_by(workers) {
                let start = step * stride + rank * batch;
                let slice = &mut joined[start..start + batch];
                prop_assert!(slice.iter().all(|row| *row == u64::MAX), "no position is anybody else's");
                plan.fill(position + start as u64, slice);
            }
        }
        prop_assert_eq!(joined, whole);
    }

    #[test]
    fn an_epoch_holds_every_row_once(population in 1..3000_u64, seed: u64, epoch in 0..1_u64 << 32) {
        let plan = SamplingPlan::permutation(population, seed).unwrap();
        let mut rows = rows(&plan, epoch * population, population as usize);
        rows.sort_unstable();
        prop_assert!(rows.into_iter().eq(0..population));
    }

    #[test]
    fn equal_weights_draw_like_none(weight in positive(), population in 1..500_usize, seed: u64, position in positions()) {
        let weights = Weights::new(&vec![weight; population]).unwrap();
        prop_assert!(weights.is_uniform());
        prop_assert_eq!((weights.table_bytes(), weights.len()), (0, population as u64));
        let uniform = SamplingPlan::uniform(population as u64, seed).unwrap();
        prop_assert_eq!(rows(&SamplingPlan::weighted(weights, seed), position, 300), rows(&uniform, position, 300));
    }

    #[test]
    fn scaling_by_a_power_of_two_changes_no_bit(weights in vec(1e-100..1e100_f64, 2..200), exponent in -600..600) {
        let scaled: Vec<f64> = weights.iter().map(|weight| weight * 2_f64.powi(exponent)).collect();
        let (weights, scaled) = (Weights::new(&weights).unwrap(), Weights::new(&scaled).unwrap());
        prop_assert_eq!(weights.table(), scaled.table());
    }

    #[test]
    fn every_share_is_exact_to_one_unit(weights in vec(1..1_u64 << 32, 2..300)) {
        let built = Weights::from_values(weights.iter().map(|weight| *weight as f64)).unwrap();
        prop_assume!(!built.is_uniform());
        let (rows, sum) = (weights.len() as u128, u128::from(weights.iter().sum::<u64>()));
        let masses = masses(&built);
        prop_assert_eq!(masses.iter().sum::<u128>(), rows << 64);
        for (weight, mass) in weights.iter().zip(masses) {
            let floor = ((rows * u128::from(*weight)) << 64) / sum;
            prop_assert!(mass == floor || mass == floor + 1, "{} is not {}", mass, floor);
        }
    }

    #[test]
    fn every_share_is_within_2_pow_minus_40(weights in vec(1e-3..1e3_f64, 2..300)) {
        let built = Weights::new(&weights).unwrap();
        let (rows, sum) = (weights.len() as f64, weights.iter().sum::<f64>());
        for (weight, mass) in weights.iter().zip(masses(&built)) {
            let (share, expected) = (mass as f64 / 2_f64.powi(64) / rows, weight / sum);
            prop_assert!((share / expected - 1.0).abs() < 2_f64.powi(-40), "{share} is not {expected}");
        }
    }

    #[test]
    fn any_positive_weights_make_a_table(weights in vec(positive(), 2..300)) {
        let built = Weights::new(&weights).unwrap();
        prop_assume!(!built.is_uniform());
        prop_assert_eq!(built.table_bytes(), weights.len() * TABLE_ENTRY_BYTES);
        let masses = masses(&built);
        prop_assert_eq!(masses.iter().sum::<u128>(), (weights.len() as u128) << 64);
        for (a, b) in weights.iter().zip(&masses).zip(weights.iter().zip(&masses).skip(1)).map(|((v, a), (w, b))| {
            if v <= w { (a, b) } else { (b, a) }
        }) {
            prop_assert!(*a <= *b + 1, "a larger weight never gets less, but for the spare unit");
        }
    }

    #[test]
    fn chunks_and_one_slice_make_the_same_table(chunks in vec(vec(positive(), 0..50), 1..6)) {
        let joined = chunks.concat();
        prop_assume!(!joined.is_empty());
        let chunked = Weights::from_values(chunks.iter().flatten().copied()).unwrap();
        let joined = Weights::new(&joined).unwrap();
        prop_assert_eq!(chunked.table(), joined.table());
    }

    #[test]
    fn an_exported_table_draws_the_same(weights in vec(positive(), 2..200), seed: u64) {
        let built = Weights::new(&weights).unwrap();
        prop_assume!(!built.is_uniform());
        let read = Weights::from_table(built.table().unwrap().to_vec()).unwrap();
        prop_assert_eq!(read.len(), built.len());
        let (built, read) = (SamplingPlan::weighted(built, seed), SamplingPlan::weighted(read, seed));
        prop_assert_eq!(rows(&built, 5, 400), rows(&read, 5, 400));
    }

    #[test]
    fn the_first_bad_weight_is_named(
        mut weights in vec(positive(), 1..100),
        bad in prop_oneof![Just(0.0), Just(-0.0), Just(-1.0), Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(f64::NAN)],
        at: prop::sample::Index,
    ) {
        let at = at.index(weights.len());
        weights[at] = bad;
        weights.push(f64::NAN);
        let error = Weights::new(&weights).unwrap_err();
        let SamplerError::InvalidWeight { row, weight } = error else { panic!("{error}") };
        prop_assert_eq!((row, weight.to_bits()), (at as u64, bad.to_bits()));
    }
}

#[test]
fn an_epoch_holds_every_row_once_for_each_small_population() {
    for population in 1..=600 {
        let plan = SamplingPlan::permutation(population, 1).unwrap();
        let mut rows = rows(&plan, 3 * population, population as usize);
        rows.sort_unstable();
        assert!(rows.into_iter().eq(0..population), "{population}");
    }
}

#[test]
fn an_epoch_holds_every_row_once_around_each_power_of_two_up_to_a_million() {
    // Squares are where the rectangle behind the order changes its sides.
    let powers = (9..=20).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]);
    let squares = [25, 100, 511, 512, 513, 1023].into_iter().flat_map(|root: usize| [root * root, root * root + 1]);
    for population in powers.chain(squares) {
        let plan = SamplingPlan::permutation(population as u64, 7).unwrap();
        let mut seen = vec![false; population];
        for row in rows(&plan, 0, population) {
            assert!(!std::mem::replace(&mut seen[row as usize], true), "{row} of {population} twice");
        }
    }
}

#[test]
fn the_largest_population_has_no_row_twice_wherever_one_looks() {
    let plan = SamplingPlan::permutation(MAX_POPULATION, 7).unwrap();
    let starts = [0, 1 << 16, MAX_POPULATION / 2, MAX_POPULATION - 50_000];
    for epoch in [0, 1, 1 << 31] {
        let mut seen: Vec<u64> =
            starts.iter().flat_map(|start| rows(&plan, epoch * MAX_POPULATION + start, 50_000)).collect();
        assert!(seen.iter().all(|row| *row < MAX_POPULATION));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 4 * 50_000);
        let low = seen.iter().filter(|row| **row < MAX_POPULATION / 2).count();
        assert!((98_880..101_120).contains(&low), "{low} of 200,000 rows are in the lower half");
    }
}

#[test]
fn permutations_reach_past_32_bits() {
    for population in [1 << 40, (1 << 40) + 12_345, u64::MAX - 1, u64::MAX] {
        let order = Permutation::new(population, 7).unwrap();
        let starts = [0, 1, population / 3, population - 1500];
        let mut seen = Vec::new();
        for start in starts {
            let mut rows = vec![0; 1000];
            order.fill(2, start, &mut rows);
            assert!(rows.iter().all(|row| *row < population));
            assert_eq!(rows[999], order.row(2, start + 999));
            seen.extend_from_slice(if start == 1 { &rows[999..] } else { &rows });
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 3001, "no two places hold the same row");
        let low = seen.iter().filter(|row| **row < population / 2).count();
        assert!((1350..1650).contains(&low), "{low} of 3001 rows are in the lower half");
    }
}

#[test]
fn fill_runs_through_many_short_epochs() {
    for population in [1, 2, 3, 8, 9, 255, 256, 257] {
        let order = Permutation::new(population, 7).unwrap();
        let plan = SamplingPlan::permutation(population, 7).unwrap();
        let drawn = rows(&plan, 1, 1000);
        for (position, row) in (1..).zip(drawn) {
            assert_eq!(row, order.row(position / population, position % population), "{population} at {position}");
        }
    }
}

#[test]
fn the_last_position_can_be_drawn_and_the_next_cannot() {
    for plan in [
        SamplingPlan::cyclic(10).unwrap(),
        SamplingPlan::uniform(10, 7).unwrap(),
        SamplingPlan::weighted(Weights::new(&[1.0, 2.0]).unwrap(), 7),
        SamplingPlan::permutation(1, 7).unwrap(),
        SamplingPlan::permutation(10, 7).unwrap(),
        SamplingPlan::permutation(1000, 7).unwrap(),
    ] {
        assert_eq!(rows(&plan, u64::MAX - 9, 10)[9], plan.row(u64::MAX));
        assert!(rows(&plan, u64::MAX, 0).is_empty());
        let past = std::panic::catch_unwind(|| rows(&plan, u64::MAX, 2));
        assert!(past.is_err());
    }
}

#[test]
fn a_stream_stops_at_its_end_and_starts_again_when_reset() {
    let mut stream = SampleStream::at(SamplingPlan::cyclic(3).unwrap(), u64::MAX - 2);
    let error = stream.next_window(3).unwrap_err();
    assert_eq!(error, SamplerError::StreamExhausted { position: u64::MAX - 2, len: 3 });
    assert_eq!(stream.position(), u64::MAX - 2);
    assert_eq!(stream.next_window(2), Ok((u64::MAX - 2, 2)));
    assert_eq!(stream.next_window(0), Ok((u64::MAX, 0)));
    assert!(stream.next_window(1).is_err());
    stream.reset();
    assert_eq!(stream.next_window(1), Ok((0, 1)));
}

#[test]
fn impossible_populations_are_refused() {
    type Make = fn(u64) -> Result<SamplingPlan, SamplerError>;
    let makers: [Make; 3] =
        [SamplingPlan::cyclic, |n| SamplingPlan::uniform(n, 7), |n| SamplingPlan::permutation(n, 7)];
    for make in makers {
        assert_eq!(make(0).unwrap_err(), SamplerError::EmptyPopulation);
        assert_eq!(make(MAX_POPULATION).unwrap().population(), MAX_POPULATION);
        let (population, maximum) = (MAX_POPULATION + 1, MAX_POPULATION);
        assert_eq!(make(population).unwrap_err(), SamplerError::PopulationTooLarge { population, maximum });
    }
    assert_eq!(Weights::new(&[]).unwrap_err(), SamplerError::EmptyPopulation);
    assert_eq!(Permutation::new(0, 7).unwrap_err(), SamplerError::EmptyPopulation);
}

#[test]
fn damaged_tables_are_refused() {
    let table = Weights::new(&[1.0, 2.0, 3.0]).unwrap().table().unwrap().to_vec();
    let refuse = |bytes: Vec<u8>| Weights::from_table(bytes).unwrap_err();
    assert_eq!(refuse(table[..35].to_vec()), SamplerError::TableLength { found_bytes: 35, entry_bytes: 12 });
    assert_eq!(refuse(Vec::new()), SamplerError::EmptyPopulation);
    let mut altered = table.clone();
    altered[12 + 8..24].copy_from_slice(&3_u32.to_le_bytes());
    assert_eq!(refuse(altered), SamplerError::TableAlias { row: 1, alias: 3, population: 3 });
    assert!(Weights::from_table(table).is_ok());
}

#[test]
fn errors_say_what_was_found() {
    let message = Weights::new(&[1.0, f64::NAN]).unwrap_err().to_string();
    assert_eq!(message, "the weight of row 1 is NaN, and a weight must be finite and greater than zero");
}

#[test]
fn plans_are_shared_between_threads() {
    fn shared<T: Send + Sync + Clone + 'static>(_: &T) {}
    let plan = SamplingPlan::weighted(Arc::new(Weights::new(&[1.0, 2.0]).unwrap()), 7);
    shared(&plan);
    shared(&SampleStream::new(plan));
}
