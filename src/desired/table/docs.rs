//! The table as a document for people.

use super::{Class, Key, Shape, Stand, TOP, Table};
use std::fmt::Write as _;

/// The whole table as Markdown: `docs/compose.md` is this text.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Compose keys on a node\n\n\
         Every key of the Compose Specification, made from the table that the parser reads. A key is honoured, accepted\n\
         since it carries no meaning on a node (`stead validate -v` says so), or refused with what to do instead.\n\
         Interpolation, `.env`, anchors, merge keys, `!reset`, `!override`, `extends`, `include`, profiles and several\n\
         files work as in Compose. `x-` keys are accepted wherever the schema accepts them; `x-stead` is ours.\n",
    );
    section(&TOP, "", &mut text);
    text
}

fn section(table: &Table, path: &str, text: &mut String) {
    let title = if path.is_empty() { "Top level".to_owned() } else { format!("`{path}`") };
    let _ = write!(text, "\n## {title}\n\n| key | on a node | a change costs |\n|---|---|---|\n");
    for key in table.keys {
        let _ = writeln!(text, "| `{}` | {} | {} |", key.name, stand(key.stand), class(key));
    }
    for key in table.keys {
        // Keys inside a refused one, or inside one without a meaning, say nothing of their own.
        if let (Stand::Honoured, Some(inner)) = (key.stand, key.shape.keys()) {
            let below = match key.shape {
                Shape::Names(..) | Shape::Attachments | Shape::DependsOn | Shape::Ulimits => ".NAME",
                _ if matches!(key.shape, Shape::Table(_) | Shape::TableOrNull(_) | Shape::Build | Shape::Extends) => "",
                _ => "[]",
            };
            let dot = if path.is_empty() { "" } else { "." };
            section(inner, &format!("{path}{dot}{}{below}", key.name), text);
        }
    }
}

fn stand(stand: Stand) -> String {
    match stand {
        Stand::Honoured => "honoured".to_owned(),
        Stand::Meaningless(why) => format!("accepted: {why}"),
        Stand::Refused(why, instead) => format!("refused: {why}; {instead}"),
    }
}

fn class(key: &Key) -> &'static str {
    match (key.stand, key.class) {
        (Stand::Honoured, Class::InPlace) => "nothing: it changes in place, with the same pid",
        (Stand::Honoured, Class::Recreate) => "a new container",
        _ => "",
    }
}
