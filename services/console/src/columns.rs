//! How columns share the width.

/// Widths that fit into `room`, taken from the widest columns first, none below `narrowest` unless it
/// needs less. `None` if that does not fit.
pub(crate) fn shared(natural: &[usize], room: usize, narrowest: usize) -> Option<Vec<usize>> {
    let total = |cap: usize| {
        natural
            .iter()
            .map(|width| (*width).min(cap))
            .fold(0_usize, usize::saturating_add)
    };
    if total(usize::MAX) <= room {
        return Some(natural.to_vec());
    }
    if total(narrowest) > room {
        return None;
    }
    // The largest cap under which all fit: narrow columns keep what they need.
    let mut cap = narrowest;
    while total(cap + 1) <= room {
        cap += 1;
    }
    let mut widths: Vec<usize> = natural.iter().map(|width| (*width).min(cap)).collect();
    let mut left = room - total(cap);
    for (width, wanted) in widths.iter_mut().zip(natural) {
        if left > 0 && *width < *wanted {
            *width += 1;
            left -= 1;
        }
    }
    Some(widths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_columns_give_way_and_narrow_ones_keep_what_they_need() {
        for (natural, room, expected) in [
            (vec![3, 10], 20, Some(vec![3, 10])),
            (vec![3, 40, 40], 43, Some(vec![3, 20, 20])),
            (vec![3, 40, 41], 44, Some(vec![3, 21, 20])),
            (vec![40, 40, 40], 17, None),
            (vec![40, 40, 40], 18, Some(vec![6, 6, 6])),
            (vec![], 10, Some(vec![])),
        ] {
            assert_eq!(shared(&natural, room, 6), expected, "{natural:?} in {room}");
        }
    }
}
