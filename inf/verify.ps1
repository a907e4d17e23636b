<#
.SYNOPSIS
    Turns Driver Verifier on or off for softndk, or shows what it says.

.DESCRIPTION
    -On   flags 0x2209BB: special pool, forced IRQL checking, pool tracking, I/O verification, deadlock detection, DMA checking,
          security checks, miscellaneous checks, DDI compliance and the NDIS checks; for softndk.sys and for ndis.sys where
          -WithNdis is given. Takes effect after a restart.
    -Off  clears the settings. Takes effect after a restart.
    Without either it shows the settings and the counters.

    Not yet run on Windows: the driver's own tests run in the kernel host on Linux.

.EXAMPLE
    .\verify.ps1 -On -WithNdis; Restart-Computer
#>
[CmdletBinding(SupportsShouldProcess, DefaultParameterSetName = 'Show')]
param(
    [Parameter(ParameterSetName = 'On', Mandatory)] [switch] $On,
    [Parameter(ParameterSetName = 'Off', Mandatory)] [switch] $Off,
    # Verify ndis.sys too: finds misuse of NDIS at its border, slows every network adapter down.
    [Parameter(ParameterSetName = 'On')] [switch] $WithNdis,
    # Extra bits, for example 0x4 (allocations fail at random) or 0x2000000 (code integrity).
    [Parameter(ParameterSetName = 'On')] [uint32] $MoreFlags = 0
)

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$principal = [Security.Principal.WindowsPrincipal] [Security.Principal.WindowsIdentity]::GetCurrent()
if (-not $principal.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)) {
    throw 'Driver Verifier is set by an administrator: start an elevated PowerShell and run this again.'
}

switch ($PSCmdlet.ParameterSetName) {
    'On' {
        $flags = '0x{0:X}' -f (0x2209BB -bor $MoreFlags)
        $drivers = @('softndk.sys')
        if ($WithNdis) { $drivers += 'ndis.sys' }
        if ($PSCmdlet.ShouldProcess($drivers -join ', ', "verify with flags $flags")) {
            # 2: set, a restart is wanted.
            verifier /flags $flags /driver @drivers
            if ($LASTEXITCODE -notin 0, 2) { throw "verifier failed with exit code $LASTEXITCODE" }
            'Restart to begin. If the machine then stops at every start, start it in safe mode and run "verifier /reset".'
        }
    }
    'Off' {
        if ($PSCmdlet.ShouldProcess('all drivers', 'stop verifying')) {
            verifier /reset
            if ($LASTEXITCODE -notin 0, 2) { throw "verifier failed with exit code $LASTEXITCODE" }
            'Restart to end it.'
        }
    }
    default {
        verifier /querysettings
        verifier /query
    }
}
