//! The constraints of SHACL Core: which values break one.

use crate::data::Data;
use crate::error::Error;
use crate::evaluate::violations;
use crate::shape::{Core, Shape};
use crate::terms::text;
use crate::value;
use oxigraph::model::{Term, TermRef};
use std::slice;

/// The values that break a constraint; `None` stands for one that is missing, or for their number.
pub(crate) fn breaches(
    core: &Core,
    node: &Term,
    values: &[Term],
    data: &Data,
) -> Result<Vec<Option<Term>>, Error> {
    let all_but = |is_right: &dyn Fn(&Term) -> bool| -> Vec<Option<Term>> {
        let wrong = values.iter().filter(|value| !is_right(value));
        wrong.cloned().map(Some).collect()
    };
    let unless = |is_right: bool| if is_right { Vec::new() } else { vec![None] };
    let count = values.len() as u64;
    Ok(match core {
        Core::Class(class) => all_but(&|value| data.is_a(value, class)),
        Core::Datatype(datatype) => all_but(&|value| datatype.has(value.as_ref())),
        Core::NodeKind(kind) => all_but(&|value| kind.has(value)),
        Core::HasValue(wanted) => unless(values.contains(wanted)),
        Core::In(known) => all_but(&|value| known.contains(value)),
        Core::MinCount(least) => unless(count >= *least),
        Core::MaxCount(most) => unless(count <= *most),
        Core::MinInclusive(least) => all_but(&|value| {
            value::compare(value.as_ref(), least).is_some_and(std::cmp::Ordering::is_ge)
        }),
        Core::MinLength(least) => all_but(&|value| {
            has_text(value) && text(value.as_ref()).chars().count() as u64 >= *least
        }),
        Core::Pattern(pattern) => {
            all_but(&|value| has_text(value) && pattern.is_match(&text(value.as_ref())))
        }
        Core::Equals(other) => {
            let others: Vec<Term> = data
                .objects(node, other.as_ref())
                .map(TermRef::into_owned)
                .collect();
            let here = values.iter().filter(|value| !others.contains(value));
            let there = others.iter().filter(|value| !values.contains(value));
            here.chain(there).cloned().map(Some).collect()
        }
        Core::Not(shape) => fitting(values, slice::from_ref(shape), data, |count| count == 0)?,
        Core::Node(shape) => fitting(values, slice::from_ref(shape), data, |count| count == 1)?,
        Core::Or(shapes) => fitting(values, shapes, data, |count| count > 0)?,
        Core::Xone(shapes) => fitting(values, shapes, data, |count| count == 1)?,
    })
}

/// A blank node has a label, which is no text.
fn has_text(value: &Term) -> bool {
    matches!(value, Term::NamedNode(_) | Term::Literal(_))
}

/// The values that fit a wrong number of shapes.
fn fitting(
    values: &[Term],
    shapes: &[Shape],
    data: &Data,
    is_right: impl Fn(usize) -> bool,
) -> Result<Vec<Option<Term>>, Error> {
    let mut wrong = Vec::new();
    for value in values {
        let mut count = 0;
        for shape in shapes {
            let broken = violations(shape, slice::from_ref(value), data)?;
            count += usize::from(broken.is_empty());
        }
        if !is_right(count) {
            wrong.push(Some(value.clone()));
        }
    }
    Ok(wrong)
}
