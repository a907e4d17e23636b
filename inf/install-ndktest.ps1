<#
.SYNOPSIS
    Installs and starts ndktest.sys, the NDK consumer that ndkctl moves data with, on a test machine.

.DESCRIPTION
    Copies ndktest.sys (signed with a test certificate) to the drivers folder and makes a service of it that is started on demand. It
    needs no adapter and no INF; it opens the NDK adapters that are there, of softndk or of a network card.

    Not yet run on Windows: the driver's own tests run in the kernel host on Linux. Use a virtual machine with a checkpoint.

.EXAMPLE
    .\install-ndktest.ps1 -Image C:\softndk\ndktest.sys

.EXAMPLE
    .\install-ndktest.ps1 -Remove
#>
[CmdletBinding(SupportsShouldProcess, DefaultParameterSetName = 'Install')]
param(
    # The signed image.
    [Parameter(Mandatory, ParameterSetName = 'Install')] [string] $Image,
    # Stops the service and takes it and the image away.
    [Parameter(Mandatory, ParameterSetName = 'Remove')] [switch] $Remove
)

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$principal = [Security.Principal.WindowsPrincipal] [Security.Principal.WindowsIdentity]::GetCurrent()
if (-not $principal.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)) {
    throw 'Drivers are installed by an administrator: start an elevated PowerShell and run this again.'
}

$service = 'ndktest'
$place = Join-Path $env:windir 'System32\drivers\ndktest.sys'

# sc.exe and not sc, which PowerShell takes for Set-Content.
function Invoke-ServiceControl([string[]] $Arguments, [int[]] $Success = @(0)) {
    & sc.exe @Arguments
    if ($Success -notcontains $LASTEXITCODE) {
        throw "sc.exe $($Arguments -join ' ') failed with exit code $LASTEXITCODE"
    }
}

if ($Remove) {
    if ($PSCmdlet.ShouldProcess($service, 'stop and delete the service')) {
        # 1062: it is not running. 1060: there is no such service.
        Invoke-ServiceControl @('stop', $service) @(0, 1060, 1062)
        Invoke-ServiceControl @('delete', $service) @(0, 1060)
        Remove-Item $place -ErrorAction SilentlyContinue
    }
    return
}

if ($PSCmdlet.ShouldProcess($place, 'install ndktest.sys')) {
    Copy-Item $Image $place
    Invoke-ServiceControl @('create', $service, 'type=', 'kernel', 'start=', 'demand', 'binPath=', $place)
    Invoke-ServiceControl @('start', $service)
}
