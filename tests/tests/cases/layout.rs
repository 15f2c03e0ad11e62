//! The object that was built has the maps that gateway-common promises.

use aya::maps::{Map, MapData};
use gateway_common::{
    Backend, Config, Count, Device, Flow, FlowKey4, FlowKey6, Outcome, Reply4, Reply6, ReplyKey4, ReplyKey6,
    Service, ServiceCount, ServiceKey, maps,
};
use gateway_tests::prog;

fn data(map: &Map) -> &MapData {
    match map {
        Map::Array(data)
        | Map::ArrayOfMaps(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data) => data,
        other => panic!("a map of another type: {other:?}"),
    }
}

#[test]
fn maps_are_as_promised() {
    fn row<K, V>(name: &'static str, capacity: u32) -> (&'static str, [Option<u32>; 2], u32) {
        (name, [size_of::<K>(), size_of::<V>()].map(|size| u32::try_from(size).ok()), capacity)
    }
    let object = prog::object().unwrap();
    let ebpf = aya::EbpfLoader::new().load(&object).unwrap();
    let rows = [
        row::<ServiceKey, Service>(maps::SERVICES, maps::MAX_SERVICES),
        row::<u32, u32>(maps::TABLES, maps::MAX_SERVICES),
        row::<u32, Backend>(maps::BACKENDS, maps::MAX_BACKENDS),
        row::<FlowKey4, Flow>(maps::FLOWS4, maps::DEFAULT_FLOWS),
        row::<FlowKey6, Flow>(maps::FLOWS6, maps::DEFAULT_FLOWS),
        row::<ReplyKey4, Reply4>(maps::REPLIES4, maps::DEFAULT_FLOWS),
        row::<ReplyKey6, Reply6>(maps::REPLIES6, maps::DEFAULT_FLOWS),
        row::<FlowKey4, Flow>(maps::OPENING4, maps::MAX_OPENING),
        row::<FlowKey6, Flow>(maps::OPENING6, maps::MAX_OPENING),
        row::<ReplyKey4, Reply4>(maps::CLAIMS4, maps::MAX_CLAIMS),
        row::<ReplyKey6, Reply6>(maps::CLAIMS6, maps::MAX_CLAIMS),
        row::<u32, Device>(maps::DEVICES, maps::MAX_DEVICES),
        row::<u32, Config>(maps::CONFIG, 1),
        row::<u32, Count>(maps::COUNTERS, 2 * Outcome::CAPACITY),
        row::<u32, ServiceCount>(maps::SERVICE_STATS, maps::MAX_SERVICES),
        row::<u32, ServiceCount>(maps::BACKEND_STATS, maps::MAX_BACKENDS),
    ];
    assert_eq!(rows.map(|row| row.0), maps::ALL, "every map has a row here");
    for (name, sizes, capacity) in rows {
        let info = data(ebpf.map(name).unwrap_or_else(|| panic!("no map {name}"))).info().unwrap();
        let seen = ([info.key_size(), info.value_size()].map(Some), info.max_entries());
        assert_eq!(seen, (sizes, capacity), "{name}");
    }
}
