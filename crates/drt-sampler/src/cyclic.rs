//! Rows in order, wrapping at the end of the population.

/// Writes `(position + i) mod population` to `rows[i]`.
pub(crate) fn fill(population: u64, position: u64, rows: &mut [u64]) {
    let mut next = position % population;
    for row in rows {
        *row = next;
        next += 1;
        if next == population {
            next = 0;
        }
    }
}
