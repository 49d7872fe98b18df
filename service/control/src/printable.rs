//! Text from other processes, made safe to print on a terminal.

use std::borrow::Cow;

/// Replaces control characters, and characters that reorder or hide other text, by their numbers, as in `\u{1b}`. Ends
/// of lines stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    replaced(text, |character| character != '\n' && is_effective(character))
}

/// Replaces the characters that [`printable`] replaces, and ends of lines too. Use it for text that is a part of a
/// message.
pub fn one_line(text: &str) -> Cow<'_, str> {
    replaced(text, is_effective)
}

fn replaced(text: &str, is_replaced: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_replaced) {
        return text.into();
    }
    let mut replaced = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match is_replaced(character) {
            true => replaced.extend(character.escape_default()),
            false => replaced.push(character),
        }
    }
    replaced.into()
}

/// Returns true for the characters that change how a terminal shows other text. These are the control characters of
/// ASCII; the control characters up to U+009F, which begin sequences on some terminals; and the characters without a
/// width of their own by which text is reordered or hidden (Unicode Standard Annex #9 and chapter 23.2).
fn is_effective(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_shown_by_number() {
        assert_eq!(printable("\x1b]0;title\x07 a\nb\u{9b}2J"), "\\u{1b}]0;title\\u{7} a\nb\\u{9b}2J");
        assert_eq!(one_line("a\nb\r\u{202e}c\u{feff}"), "a\\nb\\r\\u{202e}c\\u{feff}");
    }

    #[test]
    fn all_other_text_stays() {
        for text in ["", "prog --name 'ünïcode' \\u{1b}", "日本語 🦀"] {
            assert!(matches!(one_line(text), Cow::Borrowed(same) if same == text));
        }
    }
}
