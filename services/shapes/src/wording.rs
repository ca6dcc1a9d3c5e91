//! What is wrong, and what would be right, where a shape has no words of its own for it.

use crate::shape::{Core, Path};
use crate::terms::{short, short_name};
use oxigraph::model::Term;

/// A sentence about a breach: of which of the `values` it is, or none where one is missing or there
/// are too many.
pub(crate) fn sentence(
    core: &Core,
    path: Option<&Path>,
    values: &[Term],
    value: Option<&Term>,
) -> String {
    let path = path.map(|path| path.text(&|predicate| short_name(predicate.as_ref())));
    let what = match (&path, value) {
        (Some(path), Some(value)) => format!("`{}` of `{path}`", short(value.as_ref())),
        (Some(path), None) => format!("`{path}`"),
        (None, _) => "the node".to_owned(),
    };
    match core {
        Core::Class(class) => format!("{what} is no `{}`", short_name(class.as_ref())),
        Core::Datatype(datatype) => format!("{what} is no `xsd:{}`", datatype.as_str()),
        Core::NodeKind(kind) => format!("{what} is no {}", kind.as_str()),
        Core::HasValue(wanted) => match path {
            Some(path) => format!("no `{path}` is `{}`", short(wanted.as_ref())),
            None => format!("the node is not `{}`", short(wanted.as_ref())),
        },
        Core::In(known) => {
            let known: Vec<String> = known
                .iter()
                .map(|one| format!("`{}`", short(one.as_ref())))
                .collect();
            format!("{what} is none of {}", known.join(", "))
        }
        Core::MinCount(least) => format!(
            "{what} is there {}, and {least} is the least",
            times(values.len())
        ),
        Core::MaxCount(most) => format!(
            "{what} is there {}, and {most} is the most",
            times(values.len())
        ),
        Core::MinInclusive(least) => {
            format!("{what} is no number of at least {}", least.value())
        }
        Core::MinLength(least) => format!("{what} is not as long as {least} characters"),
        Core::Pattern(pattern) => format!("{what} is not of the form `{pattern}`"),
        Core::Equals(other) => {
            let other = short_name(other.as_ref());
            let is_here = value.is_some_and(|value| values.contains(value));
            match (path, value) {
                (Some(path), Some(value)) if !is_here => format!(
                    "`{}` of `{other}` is no `{path}`, and both have the same values",
                    short(value.as_ref())
                ),
                _ => format!("{what} is no `{other}`, and both have the same values"),
            }
        }
        Core::Not(_) => format!("{what} is what it must not be"),
        Core::Or(shapes) => format!("{what} fits none of {} shapes", shapes.len()),
        Core::Xone(shapes) => {
            format!(
                "{what} fits none or several of {} shapes, and fits one where it is right",
                shapes.len()
            )
        }
        Core::Node(shape) => format!("{what} does not fit the shape `{}`", shape.label),
    }
}

fn times(count: usize) -> String {
    match count {
        0 => "not once".to_owned(),
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}
