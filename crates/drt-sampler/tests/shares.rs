//! Mixtures, balanced plans, and draws without replacement: what holds for all of them.

use drt_sampler::{BalancedPlan, Mixture, SamplerError, WeightedOrder};
use proptest::collection::vec;
use proptest::prelude::*;

fn shares() -> impl Strategy<Value = Vec<f64>> {
    let any_positive = (1..f64::INFINITY.to_bits()).prop_map(f64::from_bits);
    vec(prop_oneof![4 => 0.001..1000.0, 2 => (1..20_u32).prop_map(f64::from), 1 => any_positive], 1..40)
}

fn places(mixture: &Mixture, position: u64, len: usize) -> Vec<(u64, u64)> {
    let mut places = vec![(u64::MAX, u64::MAX); len];
    mixture.fill(position, &mut places);
    places
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn indexes_of_each_component_are_counted_through(shares in shares(), seed: u64) {
        let mixture = Mixture::new(&shares, seed).unwrap();
        let mut next = vec![0; shares.len()];
        for (component, index) in places(&mixture, 0, 2000) {
            prop_assert_eq!(index, next[component as usize]);
            next[component as usize] += 1;
        }
    }

    #[test]
    fn indexes_follow_one_another_from_any_position(shares in shares(), seed: u64, position in 0..u64::MAX - 2000) {
        let mixture = Mixture::new(&shares, seed).unwrap();
        let mut next = vec![None; shares.len()];
        for (component, index) in places(&mixture, position, 1000) {
            let expected = next[component as usize].replace(index + 1);
            prop_assert!(expected.is_none_or(|expected| expected == index), "{index} instead of {expected:?}");
        }
    }

    #[test]
    fn components_get_their_shares_after_any_number_of_positions(shares in vec(0.01..100.0_f64, 2..40), seed: u64) {
        let mixture = Mixture::new(&shares, seed).unwrap();
        let sum: f64 = shares.iter().sum();
        let bound = f64::from(mixture.depth()) + 1e-6;
        let mut counts = vec![0.0; shares.len()];
        for (taken, (component, _)) in (1..).zip(places(&mixture, 0, 3000)) {
            counts[component as usize] += 1.0;
            for (count, share) in counts.iter().zip(&shares) {
                let expected = f64::from(taken) * share / sum;
                prop_assert!((count - expected).abs() < bound, "{count} of {taken} instead of {expected}");
            }
        }
    }

    #[test]
    fn what_came_before_a_position_is_counted_without_going_there(
        shares in shares(),
        seed: u64,
        position in prop_oneof![0..2000_u64, 0..u64::MAX - 1000],
    ) {
        let mixture = Mixture::new(&shares, seed).unwrap();
        let before = mixture.before(position);
        prop_assert_eq!(before.iter().map(|count| u128::from(*count)).sum::<u128>(), u128::from(position));
        let mut next = before;
        for (component, index) in places(&mixture, position, 1000) {
            prop_assert_eq!(index, next[component as usize]);
            next[component as usize] += 1;
        }
        prop_assert_eq!(next, mixture.before(position + 1000));
    }

    #[test]
    fn a_place_alone_is_the_one_in_its_row(shares in shares(), seed: u64, position in 0..u64::MAX - 500) {
        let mixture = Mixture::new(&shares, seed).unwrap();
        for (position, place) in (position..).zip(places(&mixture, position, 300)) {
            prop_assert_eq!(mixture.place(position), place);
        }
    }

    #[test]
    fn scaling_shares_by_a_power_of_two_changes_nothing(shares in vec(1e-100..1e100_f64, 1..30), exponent in -600..600) {
        let scaled: Vec<f64> = shares.iter().map(|share| share * 2_f64.powi(exponent)).collect();
        let (a, b) = (Mixture::new(&shares, 3).unwrap(), Mixture::new(&scaled, 3).unwrap());
        prop_assert_eq!(places(&a, 1 << 40, 500), places(&b, 1 << 40, 500));
    }

    #[test]
    fn rows_of_a_group_come_equally_often(groups in vec(0..5_u32, 1..400), seed: u64, position in 0..1_u64 << 40) {
        let mut named = groups.clone();
        named.sort_unstable();
        named.dedup();
        let groups: Vec<u32> = groups.iter().map(|group| named.binary_search(group).unwrap() as u32).collect();
        let shares: Vec<f64> = (1..=named.len() as u32).map(f64::from).collect();
        let plan = BalancedPlan::new(&groups, &shares, seed).unwrap();
        prop_assert_eq!((plan.population(), plan.mixture().components()), (groups.len() as u64, named.len() as u64));
        prop_assert_eq!(plan.groups(), &groups[..]);
        let mut rows = vec![0; 3000];
        plan.fill(0, &mut rows);
        let mut counts = vec![0_u64; groups.len()];
        for row in &rows {
            counts[*row as usize] += 1;
        }
        for group in 0..named.len() as u32 {
            let of_group = || counts.iter().zip(&groups).filter(|(_, g)| **g == group).map(|(count, _)| *count);
            prop_assert!(of_group().max().unwrap() - of_group().min().unwrap() <= 1);
        }
        plan.fill(position, &mut rows);
        for (position, row) in (position..).zip(rows).step_by(7) {
            prop_assert_eq!(plan.row(position), row);
        }
    }

    #[test]
    fn the_first_rows_are_the_beginning_of_the_whole_order(weights in shares(), seed: u64, epoch: u64, len in any::<prop::sample::Index>()) {
        let order = WeightedOrder::new(weights.clone(), seed).unwrap();
        let whole = order.first(epoch, order.population());
        let len = len.index(weights.len() + 1);
        prop_assert_eq!(&order.first(epoch, len as u64), &whole[..len]);
        let mut sorted = whole;
        sorted.sort_unstable();
        prop_assert!(sorted.into_iter().eq(0..weights.len() as u64));
    }

    #[test]
    fn scaling_weights_by_a_power_of_two_changes_no_order(weights in vec(1e-100..1e100_f64, 1..100), exponent in -600..600) {
        let scaled: Vec<f64> = weights.iter().map(|weight| weight * 2_f64.powi(exponent)).collect();
        let len = weights.len() as u64;
        let (a, b) = (WeightedOrder::new(weights, 3).unwrap(), WeightedOrder::new(scaled, 3).unwrap());
        prop_assert_eq!(a.first(5, len), b.first(5, len));
    }
}

#[test]
fn seeds_and_epochs_have_orders_of_their_own() {
    let weights = [1.0; 50];
    let order = WeightedOrder::new(weights, 1).unwrap();
    assert_ne!(order.first(0, 50), order.first(1, 50));
    assert_ne!(order.first(0, 50), WeightedOrder::new(weights, 2).unwrap().first(0, 50));
    let equal = |seed| places(&Mixture::new(&[1.0; 9], seed).unwrap(), 0, 50);
    assert_ne!(equal(1), equal(2));
}

#[test]
fn equal_shares_of_a_power_of_two_take_exact_turns() {
    for (components, seed) in [(1, 0), (2, 1), (4, 2), (64, 3)] {
        let mixture = Mixture::new(&vec![0.3; components], seed).unwrap();
        for round in places(&mixture, 0, 20 * components).chunks(components) {
            let mut turn: Vec<u64> = round.iter().map(|(component, _)| *component).collect();
            turn.sort_unstable();
            assert!(turn.into_iter().eq(0..components as u64));
        }
    }
}

#[test]
fn the_last_position_is_a_place_too() {
    let mixture = Mixture::new(&[5.0, 1e-300, 3.0], 9).unwrap();
    assert_eq!(places(&mixture, u64::MAX - 1, 2), [mixture.place(u64::MAX - 1), mixture.place(u64::MAX)]);
}

#[test]
fn rows_come_first_by_weight() {
    // Of two rows, the one with 3 of 4 comes first in 3 of 4 orders; of three, the whole order has its product of chances.
    let order = WeightedOrder::new([1.0, 2.0, 5.0], 11).unwrap();
    let epochs = 20_000;
    let mut counts = std::collections::BTreeMap::new();
    for epoch in 0..epochs {
        *counts.entry(order.first(epoch, 3)).or_insert(0.0) += 1.0;
    }
    let weights = [1.0, 2.0, 5.0];
    for (rows, count) in counts {
        let [first, second, third] = [0, 1, 2].map(|at| weights[rows[at] as usize]);
        let chance = first / 8.0 * second / (second + third);
        let (expected, sigma) = (epochs as f64 * chance, (epochs as f64 * chance * (1.0 - chance)).sqrt());
        assert!((count - expected).abs() < 5.0 * sigma, "{rows:?}: {count} instead of {expected}");
    }
}

#[test]
fn weights_of_any_size_keep_their_order() {
    let order = WeightedOrder::new([5e-324, 1e308, 1e-160, 1.0], 3).unwrap();
    for epoch in 0..100 {
        assert_eq!(order.first(epoch, 4), [1, 3, 2, 0]);
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let shares = |shares: &[f64]| Mixture::new(shares, 0).unwrap_err();
    assert_eq!(shares(&[]), SamplerError::EmptyPopulation);
    assert_eq!(shares(&[1.0, 0.0]), SamplerError::InvalidShare { component: 1, share: 0.0 });
    assert!(matches!(shares(&[f64::NAN]), SamplerError::InvalidShare { component: 0, .. }));
    let plan = |groups: &[u32]| BalancedPlan::new(groups, &[1.0, 1.0], 0).unwrap_err();
    assert_eq!(plan(&[]), SamplerError::EmptyPopulation);
    assert_eq!(plan(&[0, 1, 2]), SamplerError::UnknownGroup { row: 2, group: 2, groups: 2 });
    assert_eq!(plan(&[1, 1]), SamplerError::EmptyGroup { group: 0 });
    let order = |weights: &[f64]| WeightedOrder::new(weights, 0).unwrap_err();
    assert_eq!(order(&[]), SamplerError::EmptyPopulation);
    assert_eq!(order(&[1.0, -2.0]), SamplerError::InvalidWeight { row: 1, weight: -2.0 });
}
