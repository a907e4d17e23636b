//! A driver that ends the system itself.

use crate::bugcheck::bugcheck_of_image;
use crate::exports;

exports! {
    module "ntoskrnl.exe";

    /// Ends the process with the driver's own code and parameters.
    /// Source: WDM: KeBugCheckEx
    [ANY] fn KeBugCheckEx(code: u32, first: u64, second: u64, third: u64, fourth: u64) -> ! {
        bugcheck_of_image(code, [first, second, third, fourth])
    }

    /// Ends the process with the driver's own code.
    /// Source: WDM: KeBugCheck
    [ANY] fn KeBugCheck(code: u32) -> ! {
        bugcheck_of_image(code, [0; 4])
    }
}
