//! The driver keys of this computer's adapters.

use super::change::{UplinkValues, WireAdapter, WireKeys, has_streams};
use crate::adapter::SetupApi;
use crate::adapter::registry::{Key, READ, WRITE};
use crate::failure::{Failure, Kind};

pub struct WireRegistry;

const PEERS: &str = "UplinkPeers";
const PORT: &str = "UplinkPort";
const OUTER_MTU: &str = "UplinkOuterMtu";

fn text(key: &Key, name: &str) -> Option<String> {
    key.0.get_string(name).ok().filter(|text| !text.is_empty())
}

impl WireKeys for WireRegistry {
    fn adapters(&self) -> Result<Vec<WireAdapter>, Failure> {
        let keys = SetupApi::driver_keys(READ)?;
        let adapter = |(instance, key): (String, Key)| WireAdapter {
            instance,
            has_streams: has_streams(text(&key, "Transport").as_deref()),
            wire_number: text(&key, "WireNumber").and_then(|text| text.parse().ok()).unwrap_or(0),
            values: UplinkValues { peers: text(&key, PEERS), port: text(&key, PORT), outer_mtu: text(&key, OUTER_MTU) },
        };
        Ok(keys.into_iter().map(adapter).collect())
    }

    fn set(&self, instance: &str, values: &UplinkValues) -> Result<(), Failure> {
        let keys = SetupApi::driver_keys(WRITE)?;
        let Some((_, key)) = keys.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(instance)) else {
            return Ok(());
        };
        for (name, value) in [(PORT, &values.port), (OUTER_MTU, &values.outer_mtu), (PEERS, &values.peers)] {
            let done = match value {
                Some(value) => key.0.set_string(name, value),
                None if text(&key, name).is_none() => Ok(()),
                None => key.0.remove_value(name),
            };
            done.map_err(|error| {
                let what = format!("cannot change {name} of {instance}");
                Failure::new(Kind::Unreachable, what, error.to_string(), "run it as administrator")
            })?;
        }
        Ok(())
    }

    fn restart(&self, instance: &str) -> Result<bool, Failure> {
        SetupApi::restart(instance)
    }
}
