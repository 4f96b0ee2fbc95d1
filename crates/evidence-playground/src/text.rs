//! How numbers and names are written for people.

/// `1234567` as `1,234,567`.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `3` and `"byte"` as `3 bytes`.
pub fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// The half-open range as the range paths write it, with digits grouped.
pub fn range(start: usize, end: usize) -> String {
    format!("{}–{}", grouped(start), grouped(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        let written = [0, 12, 123, 1234, 123_456, 1_234_567].map(grouped);
        assert_eq!(written, ["0", "12", "123", "1,234", "123,456", "1,234,567"]);
        assert_eq!(counted(1, "byte"), "1 byte");
        assert_eq!(counted(2000, "byte"), "2,000 bytes");
    }
}
