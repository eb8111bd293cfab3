//! Published vectors: `vectors.json`, which the plain-Python plan is tested with too.
//!
//! A vector never changes under plan version 1; new ones are added.

use std::sync::Arc;

use drt_sampler::{BalancedPlan, Mixture, Mode, PLAN_VERSION, Permutation, SamplingPlan, WeightedOrder, Weights};
use serde_json::Value;

fn vectors() -> Value {
    let vectors: Value = serde_json::from_str(include_str!("vectors.json")).unwrap();
    assert_eq!(vectors["plan_version"], PLAN_VERSION);
    vectors
}

/// The weights listed in a case, as text so that both languages read the same numbers.
fn listed_weights(case: &Value) -> Option<Vec<f64>> {
    case.get("weights")?;
    Some(floats(case, "weights"))
}

fn floats(case: &Value, name: &str) -> Vec<f64> {
    case[name].as_array().unwrap().iter().map(|float| float.as_str().unwrap().parse().unwrap()).collect()
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

fn plan(case: &Value) -> SamplingPlan {
    let (population, seed) = (case["population"].as_u64().unwrap(), case["seed"].as_u64().unwrap());
    match (case["mode"].as_str().unwrap(), listed_weights(case)) {
        ("cyclic", None) => SamplingPlan::cyclic(population).unwrap(),
        ("multinomial", None) => SamplingPlan::uniform(population, seed).unwrap(),
        ("multinomial", Some(listed)) => {
            let weights = listed.into_iter().cycle().take(population as usize);
            SamplingPlan::weighted(Weights::from_values(weights).unwrap(), seed)
        }
        ("permutation", None) => SamplingPlan::permutation(population, seed).unwrap(),
        other => panic!("unknown kind of case: {other:?}"),
    }
}

#[test]
fn draws_are_as_published() {
    for case in vectors()["draws"].as_array().unwrap() {
        let plan = plan(case);
        let position = case["position"].as_u64().unwrap();
        let expected: Vec<u64> = case["rows"].as_array().unwrap().iter().map(|row| row.as_u64().unwrap()).collect();
        let mut rows = vec![0; expected.len()];
        plan.fill(position, &mut rows);
        assert_eq!(rows, expected, "{case}");
        for (position, row) in (position..=u64::MAX).zip(expected) {
            assert_eq!(plan.row(position), row, "{case} at {position}");
        }
    }
}

#[test]
fn orders_are_as_published() {
    for case in vectors()["orders"].as_array().unwrap() {
        let number = |name: &str| case[name].as_u64().unwrap();
        let order = Permutation::new(number("population"), number("seed")).unwrap();
        let expected: Vec<u64> = case["rows"].as_array().unwrap().iter().map(|row| row.as_u64().unwrap()).collect();
        let mut rows = vec![0; expected.len()];
        order.fill(number("epoch"), number("index"), &mut rows);
        assert_eq!(rows, expected, "{case}");
    }
}

#[test]
fn tables_are_as_published() {
    for case in vectors()["tables"].as_array().unwrap() {
        let weights = Weights::new(&listed_weights(case).unwrap()).unwrap();
        let table: String = weights.table().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(table, case["table"].as_str().unwrap(), "{case}");
    }
}

#[test]
fn weighted_orders_are_as_published() {
    for case in vectors()["weighted_orders"].as_array().unwrap() {
        let order = WeightedOrder::new(floats(case, "weights"), case["seed"].as_u64().unwrap()).unwrap();
        let rows = order.first(case["epoch"].as_u64().unwrap(), order.population());
        assert_eq!(rows, numbers(&case["rows"]), "{case}");
    }
}

#[test]
fn mixtures_are_as_published() {
    for case in vectors()["mixtures"].as_array().unwrap() {
        let mixture = Mixture::new(&floats(case, "shares"), case["seed"].as_u64().unwrap()).unwrap();
        let expected = case["places"].as_array().unwrap();
        for (position, place) in (case["position"].as_u64().unwrap()..=u64::MAX).zip(expected) {
            let (component, index) = mixture.place(position);
            assert_eq!([component, index], *numbers(place), "{case} at {position}");
        }
    }
}

#[test]
fn balanced_plans_are_as_published() {
    for case in vectors()["balanced"].as_array().unwrap() {
        let groups: Vec<u32> = numbers(&case["groups"]).into_iter().map(|group| group as u32).collect();
        let plan = BalancedPlan::new(&groups, &floats(case, "shares"), case["seed"].as_u64().unwrap()).unwrap();
        let expected = numbers(&case["rows"]);
        let mut rows = vec![0; expected.len()];
        plan.fill(case["position"].as_u64().unwrap(), &mut rows);
        assert_eq!(rows, expected, "{case}");
    }
}

#[test]
fn plan_version_and_modes_are_pinned() {
    assert_eq!(PLAN_VERSION, 1);
    assert_eq!(SamplingPlan::cyclic(3).unwrap().mode(), Mode::Cyclic);
    assert_eq!(SamplingPlan::uniform(3, 0).unwrap().mode(), Mode::Multinomial);
    assert_eq!(SamplingPlan::permutation(3, 0).unwrap().mode(), Mode::Permutation);
    let weights = Arc::new(Weights::new(&[1.0, 2.0]).unwrap());
    let plan = SamplingPlan::weighted(Arc::clone(&weights), 9);
    assert_eq!((plan.mode(), plan.population(), plan.seed()), (Mode::Multinomial, 2, 9));
    assert!(Arc::ptr_eq(plan.weights().unwrap(), &weights));
}
