//! IClassFactory: makes providers of both versions. And the choice behind `DllGetClassObject`.

use core::ffi::c_void;

use softnd_interfaces::{
    Guid, Status,
    unknown::{ClassFactoryTable, IClassFactory, IUnknown},
    v1::INDProvider,
    v2::IND2Provider,
};

use crate::{
    argument::{Given, Place, Unknown, entry},
    com::{self, Face, NewInterface, unknown_table},
    v1::V1Provider,
    v2::V2Provider,
};

struct ClassFactory;

impl Face for ClassFactory {
    type Table = ClassFactoryTable;
    const TABLE: &'static Self::Table = &ClassFactoryTable {
        base: unknown_table::<Self>(),
        create_instance: entry!(
            ClassFactory,
            create_instance(outer: Unknown, iid: Given<Guid>, out: Place<*mut c_void>) -> Result<(), Status>
        ),
        lock_server: entry!(ClassFactory, lock_server(lock: i32) -> Result<(), Status>),
    };
    const CLASS: Guid = Guid::new(0x8C1D_6E0A_52B7_4F36_9A70_0E5D_1C3B_0001);
    const INTERFACES: &'static [Guid] = &[IClassFactory::IID];
}

impl ClassFactory {
    #[allow(clippy::unused_self, reason = "a method of the interface")]
    fn create_instance(&self, outer: Unknown, iid: Given<Guid>, out: Place<*mut c_void>) -> Result<(), Status> {
        out.write(core::ptr::null_mut())?;
        if !outer.is_none() {
            return Err(Status::COM_NO_AGGREGATION);
        }
        provider(iid, out)
    }

    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "a method of the interface")]
    fn lock_server(&self, lock: i32) -> Result<(), Status> {
        com::lock_module(lock != 0);
        Ok(())
    }
}

/// A provider of the version whose interface is asked for; version 2 for one who asks for none.
fn provider(iid: Given<Guid>, out: Place<*mut c_void>) -> Result<(), Status> {
    match iid.get() {
        Some(INDProvider::IID) => NewInterface::new(iid, out)?.give(V1Provider::new()),
        _ => NewInterface::new(iid, out)?.give(V2Provider::new()),
    }
}

/// What `DllGetClassObject` gives: a factory, or the provider itself.
pub fn class_object(iid: Given<Guid>, out: Place<*mut c_void>) -> Result<(), Status> {
    match iid.get() {
        Some(IND2Provider::IID | INDProvider::IID) => provider(iid, out),
        Some(IUnknown::IID | IClassFactory::IID) => NewInterface::new(iid, out)?.give(ClassFactory),
        _ => {
            let _ = out.write(core::ptr::null_mut());
            Err(Status::COM_NO_INTERFACE)
        }
    }
}
