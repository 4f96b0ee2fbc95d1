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

/// A number of bytes in the unit that suits it.
pub fn megabytes(byte_count: u64) -> String {
    let (unit, name) = match byte_count {
        0..1_000_000 => (1_000, "KB"),
        1_000_000..1_000_000_000 => (1_000_000, "MB"),
        _ => (1_000_000_000, "GB"),
    };
    let tenths = byte_count.saturating_mul(10) / unit;
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

/// A rate, to a tenth.
pub fn tenth(rate: f64) -> String {
    format!("{rate:.1}")
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

    #[test]
    fn sizes_have_the_unit_that_suits_them() {
        let written = [0, 1_550, 57_888, 2_500_000, 1_192_000_000].map(megabytes);
        assert_eq!(written, ["0.0 KB", "1.5 KB", "57.8 KB", "2.5 MB", "1.1 GB"]);
    }
}
