//! Cells of volumes, their classes, and claims of devices.

use machinery::meta;
use serde_json::Value;

use super::*;

printer!(
    PVC,
    "Name|string|name|0;Status|string||0;Volume|string||0;Capacity|string||0;Access Modes|string||0;StorageClass|string||0;VolumeAttributesClass|string||0;Age|string||0;VolumeMode|string||1",
    |o, ages| {
        let bound = !o.text("spec.volumeName").is_empty();
        let class = meta::annotations(o)
            .and_then(|a| a.get("volume.beta.kubernetes.io/storage-class"))
            .and_then(Value::as_str)
            .unwrap_or_else(|| o.text("spec.storageClassName"));
        vec![
            name(o),
            phase(o).into(),
            o.text("spec.volumeName").into(),
            if bound {
                or(o.text("status.capacity.storage"), "0").into()
            } else {
                "".into()
            },
            if bound {
                access_modes(o, "status.accessModes").into()
            } else {
                "".into()
            },
            class.into(),
            or(o.text("spec.volumeAttributesClassName"), "<unset>").into(),
            age(o, ages),
            or(o.text("spec.volumeMode"), "<unset>").into(),
        ]
    }
);

printer!(
    PV,
    "Name|string|name|0;Capacity|string||0;Access Modes|string||0;Reclaim Policy|string||0;Status|string||0;Claim|string||0;StorageClass|string||0;VolumeAttributesClass|string||0;Reason|string||0;Age|string||0;VolumeMode|string||1",
    |o, ages| {
        let claim = match o.has("spec.claimRef") {
            true => format!(
                "{}/{}",
                o.text("spec.claimRef.namespace"),
                o.text("spec.claimRef.name")
            ),
            false => String::new(),
        };
        let class = meta::annotations(o)
            .and_then(|a| a.get("volume.beta.kubernetes.io/storage-class"))
            .and_then(Value::as_str)
            .unwrap_or_else(|| o.text("spec.storageClassName"));
        vec![
            name(o),
            or(o.text("spec.capacity.storage"), "0").into(),
            access_modes(o, "spec.accessModes").into(),
            o.text("spec.persistentVolumeReclaimPolicy").into(),
            phase(o).into(),
            claim.into(),
            class.into(),
            or(o.text("spec.volumeAttributesClassName"), "<unset>").into(),
            o.text("status.reason").into(),
            age(o, ages),
            or(o.text("spec.volumeMode"), "<unset>").into(),
        ]
    }
);

printer!(
    CSI_DRIVER,
    "Name|string|name|0;AttachRequired|boolean||0;PodInfoOnMount|boolean||0;StorageCapacity|boolean||0;TokenRequests|string||0;RequiresRepublish|boolean||0;Modes|string||0;Age|string||0",
    |o, ages| {
        let tokens = match o.dig("spec.tokenRequests").as_array() {
            None => "<unset>".to_string(),
            Some(list) => list
                .iter()
                .map(|t| t.text("audience"))
                .collect::<Vec<_>>()
                .join(","),
        };
        let modes = o
            .strings("spec.volumeLifecycleModes")
            .collect::<Vec<_>>()
            .join(",");
        vec![
            name(o),
            o.dig("spec.attachRequired").as_bool().unwrap_or(true).into(),
            o.flag("spec.podInfoOnMount").into(),
            o.flag("spec.storageCapacity").into(),
            tokens.into(),
            o.flag("spec.requiresRepublish").into(),
            or(&modes, "<none>").into(),
            age(o, ages),
        ]
    }
);

printer!(
    CSI_NODE,
    "Name|string|name|0;Drivers|integer||0;Age|string||0",
    |o, ages| vec![name(o), o.list("spec.drivers").len().into(), age(o, ages)]
);

printer!(
    STORAGE_CLASS,
    "Name|string|name|0;Provisioner|string||0;ReclaimPolicy|string||0;VolumeBindingMode|string||0;AllowVolumeExpansion|string||0;Age|string||0",
    |o, ages| {
        let annotations = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        vec![
            default_name(o, &annotations),
            o.text("provisioner").into(),
            or(o.text("reclaimPolicy"), "Delete").into(),
            or(o.text("volumeBindingMode"), "Immediate").into(),
            o.flag("allowVolumeExpansion").into(),
            age(o, ages),
        ]
    }
);

printer!(
    VOLUME_ATTACHMENT,
    "Name|string|name|0;Attacher|string|name|0;PV|string||0;Node|string||0;Attached|boolean||0;Age|string||0",
    |o, ages| vec![
        name(o),
        o.text("spec.attacher").into(),
        o.text("spec.source.persistentVolumeName").into(),
        o.text("spec.nodeName").into(),
        o.flag("status.attached").into(),
        age(o, ages)
    ]
);

printer!(
    VOLUME_ATTRIBUTES_CLASS,
    "Name|string|name|0;DriverName|string||0;Age|string||0",
    |o, ages| vec![name(o), o.text("driverName").into(), age(o, ages)]
);

printer!(
    RESOURCE_CLAIM,
    "Name|string|name|0;State|string||0;Age|string||0",
    |o, ages| {
        let deleted = o.has("metadata.deletionTimestamp");
        let mut states = Vec::new();
        if deleted {
            states.push("deleted");
        }
        if o.has("status.allocation") {
            states.push("allocated");
            if !o.list("status.reservedFor").is_empty() {
                states.push("reserved");
            }
        } else if !deleted {
            states.push("pending");
        }
        vec![name(o), states.join(",").into(), age(o, ages)]
    }
);

printer!(
    RESOURCE_SLICE,
    "Name|string|name|0;Node|string||0;Driver|string||0;Pool|string||0;Age|string||0",
    |o, ages| vec![
        name(o),
        o.text("spec.nodeName").into(),
        o.text("spec.driver").into(),
        o.text("spec.pool.name").into(),
        age(o, ages)
    ]
);

printer!(
    DEVICE_TAINT_RULE,
    "Name|string|name|0;Key|string||0;Value|string||0;Effect|string||0;TimeAdded|string||0;Age|string||0",
    |o, ages| vec![
        name(o),
        o.text("spec.taint.key").into(),
        o.text("spec.taint.value").into(),
        o.text("spec.taint.effect").into(),
        match o.text("spec.taint.timeAdded") {
            "" => "".into(),
            time => since(ages, time).into(),
        },
        age(o, ages)
    ]
);

printer!(
    RESOURCE_POOL_STATUS_REQUEST,
    "Name|string|name|0;Driver|string||0;Total|string||0;Available|string||0;Allocated|string||0;Unavailable|string||0;Errors|string||0;Pools|integer||0;Status|string||0;Completed|string||0",
    pool_status
);

fn pool_status(o: &Value, ages: &Ages) -> Vec<Value> {
    let mut conditions = o.list("status.conditions").iter();
    let last =
        conditions.find(|c| matches!(c.text("type"), "Complete" | "Failed") && c.text("status") == "True");
    let state = last.map_or("Pending", |condition| condition.text("type"));
    let (pools, count) = (
        o.list("status.pools"),
        o.int("status.poolCount").unwrap_or_default(),
    );
    let sum = |key: &str| -> Value {
        if !o.has("status") || state == "Failed" {
            return "-".into();
        }
        let numbers = pools.iter().filter_map(|pool| pool.int(key));
        numbers.fold(0, i64::saturating_add).to_string().into()
    };
    let errors = match sum("totalDevices") == "-" {
        true => "-".to_owned(),
        false => pools
            .iter()
            .filter(|pool| pool.has("validationError"))
            .count()
            .to_string(),
    };
    let shown = pools.len();
    let is_cut = state == "Complete" && i64::try_from(shown).is_ok_and(|shown| count > shown);
    vec![
        name(o),
        o.text("spec.driver").into(),
        sum("totalDevices"),
        sum("availableDevices"),
        sum("allocatedDevices"),
        sum("unavailableDevices"),
        errors.into(),
        count.into(),
        match is_cut {
            true => format!("Complete ({shown}/{count} pools)").into(),
            false => state.into(),
        },
        match last.filter(|_| state == "Complete") {
            Some(condition) => since(ages, condition.text("lastTransitionTime")).into(),
            None => "<none>".into(),
        },
    ]
}

fn access_modes(object: &Value, path: &str) -> String {
    let modes = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let list: Vec<&str> = object.strings(path).collect();
    let short: Vec<&str> = modes
        .iter()
        .filter(|(long, _)| list.contains(long))
        .map(|(_, s)| *s)
        .collect();
    short.join(",")
}
