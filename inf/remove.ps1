<#
.SYNOPSIS
    Removes all softndk adapters and the driver package.

.DESCRIPTION
    Removes every device root\softndk, then every softndk package from the driver store. Close programs that use the adapters
    first: the driver ends its own sessions, but foreign kernel consumers must close theirs.

    Not yet run on Windows: the driver's own tests run in the kernel host on Linux.

.EXAMPLE
    .\remove.ps1
#>
[CmdletBinding(SupportsShouldProcess)]
param()

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$principal = [Security.Principal.WindowsPrincipal] [Security.Principal.WindowsIdentity]::GetCurrent()
if (-not $principal.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)) {
    throw 'Drivers are removed by an administrator: start an elevated PowerShell and run this again.'
}

$failed = @()

$devices = @(Get-PnpDevice -Class Net -ErrorAction SilentlyContinue |
    Where-Object { @($_.HardwareID) -contains 'root\softndk' })
foreach ($device in $devices) {
    if ($PSCmdlet.ShouldProcess($device.InstanceId, 'remove the device')) {
        pnputil /remove-device $device.InstanceId
        # 3010: done, a restart is wanted.
        if ($LASTEXITCODE -notin 0, 3010) { $failed += $device.InstanceId }
    }
}

$packages = @(Get-WindowsDriver -Online |
    Where-Object { (Split-Path -Leaf $_.OriginalFileName) -eq 'softndk.inf' })
foreach ($package in $packages) {
    if ($PSCmdlet.ShouldProcess($package.Driver, 'delete the driver package')) {
        pnputil /delete-driver $package.Driver /uninstall
        if ($LASTEXITCODE -notin 0, 3010) { $failed += $package.Driver }
    }
}

if ($failed) {
    throw "Not removed: $($failed -join ', '). Close what uses the adapters (ndkctl, SMB shares over them), or restart, and run this again."
}
"Removed $($devices.Count) adapters and $($packages.Count) packages."
