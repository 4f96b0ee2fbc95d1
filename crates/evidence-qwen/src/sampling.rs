//! How the next token is chosen.

use serde::Deserialize;

use crate::engine::{Candidate, MAX_CANDIDATES};

/// How the next token is chosen among those that the model finds likely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token; larger values flatten the distribution.
    pub temperature: f32,
    /// Only this many of the likeliest are considered. 0 means as many as
    /// leave the device, 256.
    pub top_k: usize,
    /// Of those, the likeliest that make up this share of the probability.
    pub top_p: f32,
    /// Tokens that occurred before are made less likely by this factor. 1 is off.
    pub repetition_penalty: f32,
    /// The same seed gives the same reply.
    pub seed: u64,
}

impl Sampling {
    /// Always the likeliest token.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        repetition_penalty: 1.0,
        seed: 0,
    };

    /// How many candidates the choice needs.
    pub(crate) fn candidate_count(&self) -> usize {
        if self.temperature <= 0.0 {
            1
        } else if self.top_k == 0 {
            MAX_CANDIDATES
        } else {
            self.top_k.min(MAX_CANDIDATES)
        }
    }
}

/// `generation_config.json`: where a reply ends, and how its authors sample.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GenerationConfig {
    pub(crate) stop_tokens: Vec<u32>,
    pub(crate) sampling: Option<Sampling>,
}

#[derive(Default, Deserialize)]
struct RawGenerationConfig {
    eos_token_id: Option<TokenIds>,
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TokenIds {
    One(u32),
    Many(Vec<u32>),
}

impl GenerationConfig {
    /// Reads `generation_config.json`, or the same fields of a `config.json`.
    pub(crate) fn parse(json: &str) -> Result<Self, String> {
        let raw: RawGenerationConfig =
            serde_json::from_str(json).map_err(|error| error.to_string())?;
        let stop_tokens = match raw.eos_token_id {
            Some(TokenIds::One(token)) => vec![token],
            Some(TokenIds::Many(tokens)) => tokens,
            None => Vec::new(),
        };
        let sampling = (raw.do_sample == Some(true)).then(|| Sampling {
            temperature: raw.temperature.unwrap_or(1.0),
            top_k: raw.top_k.unwrap_or(50),
            top_p: raw.top_p.unwrap_or(1.0),
            repetition_penalty: raw.repetition_penalty.unwrap_or(1.0),
            seed: 0,
        });
        Ok(Self {
            stop_tokens,
            sampling,
        })
    }
}

/// A small generator of even numbers, `SplitMix64`: one number a token is all
/// that it gives.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A number in `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let unit = (bits >> 11) as f64 / (1_u64 << 53) as f64;
        unit
    }
}

/// Chooses one of the candidates, which are sorted, the likeliest first.
pub(crate) fn choose(
    candidates: &[Candidate],
    sampling: &Sampling,
    random: &mut Random,
) -> Option<u32> {
    let first = candidates.first()?;
    if sampling.temperature <= 0.0 {
        return Some(first.token);
    }
    let temperature = f64::from(sampling.temperature);
    let weights: Vec<f64> = candidates
        .iter()
        .map(|candidate| (f64::from(candidate.logit - first.logit) / temperature).exp())
        .collect();
    let total: f64 = weights.iter().sum();
    let mut kept = 0.0;
    let mut count = 0;
    for weight in &weights {
        kept += weight;
        count += 1;
        if kept >= f64::from(sampling.top_p) * total {
            break;
        }
    }
    let mut target = random.unit() * kept;
    for (candidate, weight) in candidates[..count].iter().zip(&weights) {
        target -= weight;
        if target < 0.0 {
            return Some(candidate.token);
        }
    }
    // Rounding can leave a little.
    Some(candidates[count - 1].token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(logits: &[f32]) -> Vec<Candidate> {
        (0..)
            .zip(logits)
            .map(|(token, logit)| Candidate {
                token,
                logit: *logit,
            })
            .collect()
    }

    #[test]
    fn greedy_takes_the_first() {
        let mut random = Random::new(1);
        let chosen = choose(&candidates(&[2.0, 1.0]), &Sampling::GREEDY, &mut random);
        assert_eq!(chosen, Some(0));
        assert_eq!(choose(&[], &Sampling::GREEDY, &mut random), None);
    }

    #[test]
    fn samples_follow_the_probabilities() {
        let list = candidates(&[3.0_f32.ln(), 0.0]);
        let sampling = Sampling {
            temperature: 1.0,
            ..Sampling::GREEDY
        };
        let mut random = Random::new(7);
        let zeros = (0..4000)
            .filter(|_| choose(&list, &sampling, &mut random) == Some(0))
            .count();
        assert!(
            (2850..3150).contains(&zeros),
            "{zeros} of 4000, 3000 expected"
        );
    }

    #[test]
    fn top_p_keeps_the_fewest_that_reach_it() {
        let list = candidates(&[0.5_f32.ln(), 0.3_f32.ln(), 0.2_f32.ln()]);
        let sampling = Sampling {
            temperature: 1.0,
            top_p: 0.7,
            ..Sampling::GREEDY
        };
        let mut random = Random::new(7);
        let mut seen = [0; 3];
        for _ in 0..1000 {
            seen[choose(&list, &sampling, &mut random).unwrap() as usize] += 1;
        }
        assert!(seen[0] > 0 && seen[1] > 0 && seen[2] == 0, "{seen:?}");
    }

    #[test]
    fn a_seed_gives_the_same_choices() {
        let list = candidates(&[0.0; 50]);
        let sampling = Sampling {
            temperature: 0.7,
            ..Sampling::GREEDY
        };
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..20)
                .map(|_| choose(&list, &sampling, &mut random))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn generation_config_names_the_stop_tokens() {
        let config = GenerationConfig::parse(
            r#"{"do_sample":true,"eos_token_id":[5,6],"temperature":0.6,"top_k":20,"top_p":0.95}"#,
        )
        .unwrap();
        assert_eq!(config.stop_tokens, [5, 6]);
        assert_eq!(config.sampling.unwrap().top_k, 20);
        assert_eq!(
            GenerationConfig::parse(r#"{"eos_token_id":5}"#)
                .unwrap()
                .stop_tokens,
            [5]
        );
        assert!(GenerationConfig::parse("[]").is_err());
    }
}
