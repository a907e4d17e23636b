<#
.SYNOPSIS
    Installs softndk with the wanted number of adapters on a test machine.

.DESCRIPTION
    Takes a folder with softndk.inf, softndk.sys and softndk.cat (signed with a test certificate), trusts the certificate,
    adds the package to the driver store and makes one root-enumerated device per adapter, with devgen (WDK 22H2 and later) or
    devcon. Adapters with equal wire numbers can reach each other.

    Not yet run on Windows: the driver's own tests run in the kernel host on Linux. Read it before you use it, and use a
    virtual machine with a checkpoint.

.EXAMPLE
    .\install.ps1 -Package C:\softndk -Adapters 2 -Certificate C:\softndk\softndk.cer
#>
[CmdletBinding(SupportsShouldProcess)]
param(
    # Folder of the package.
    [Parameter(Mandatory)] [string] $Package,
    # Adapters to make.
    [ValidateRange(1, 16)] [int] $Adapters = 2,
    # Wire number of all of them.
    [ValidateRange(0, 65535)] [int] $WireNumber = 0,
    # Test certificate to trust; leave out when it is trusted already.
    [string] $Certificate
)

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

function Assert-Administrator {
    $principal = [Security.Principal.WindowsPrincipal] [Security.Principal.WindowsIdentity]::GetCurrent()
    if (-not $principal.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)) {
        throw 'Drivers are installed by an administrator: start an elevated PowerShell and run this again.'
    }
}

function Assert-TestSigning {
    if ([Environment]::OSVersion.Version.Build -lt 19041) {
        throw 'softndk needs Windows build 19041 or later.'
    }
    # The option's name is not translated by bcdedit, "Yes" is: look only whether it is listed.
    if (-not (bcdedit /enum '{current}' | Select-String -Quiet '^testsigning')) {
        throw 'Test signing is off: run "bcdedit /set testsigning on" (Secure Boot must be off), restart, and run this again.'
    }
}

# A native tool that failed stops the script; its output says why.
function Invoke-Tool([string] $Tool, [string[]] $Arguments, [int[]] $Success = @(0)) {
    & $Tool @Arguments
    if ($Success -notcontains $LASTEXITCODE) {
        throw "$Tool $($Arguments -join ' ') failed with exit code $LASTEXITCODE; details in $env:windir\INF\setupapi.dev.log"
    }
}

function Find-Tool([string] $Name) {
    $command = Get-Command $Name -ErrorAction SilentlyContinue
    if ($command) { return $command.Source }
    $kits = Join-Path ${env:ProgramFiles(x86)} 'Windows Kits\10\Tools'
    if (-not (Test-Path $kits)) { return $null }
    Get-ChildItem $kits -Recurse -Filter $Name -ErrorAction SilentlyContinue |
        Where-Object { $_.FullName -match "\\$($env:PROCESSOR_ARCHITECTURE -replace 'AMD64', 'x64')\\" } |
        Select-Object -Last 1 -ExpandProperty FullName
}

Assert-Administrator
Assert-TestSigning

$inf = Join-Path (Resolve-Path $Package) 'softndk.inf'
foreach ($file in 'softndk.inf', 'softndk.sys', 'softndk.cat') {
    if (-not (Test-Path (Join-Path $Package $file))) { throw "$file is not in ${Package}: build and stamp the package first." }
}

if ($Certificate -and $PSCmdlet.ShouldProcess($Certificate, 'trust the test certificate')) {
    Invoke-Tool certutil @('-addstore', 'Root', $Certificate)
    Invoke-Tool certutil @('-addstore', 'TrustedPublisher', $Certificate)
}

$devgen = Find-Tool 'devgen.exe'
$devcon = Find-Tool 'devcon.exe'
if (-not $devgen -and -not $devcon) {
    throw 'Neither devgen.exe nor devcon.exe was found: pnputil alone cannot make a root-enumerated device. Install the WDK, or copy one of them here and add its folder to PATH.'
}

if ($PSCmdlet.ShouldProcess("$Adapters devices root\softndk", 'install')) {
    # 3010: done, a restart is wanted.
    Invoke-Tool pnputil @('/add-driver', $inf, '/install') @(0, 259, 3010)
    for ($number = 1; $number -le $Adapters; $number++) {
        if ($devgen) {
            Invoke-Tool $devgen @('/add', '/bus', 'ROOT', '/hardwareid', 'root\softndk')
        } else {
            Invoke-Tool $devcon @('install', $inf, 'root\softndk') @(0, 1)
        }
    }
    Invoke-Tool pnputil @('/scan-devices')

    $found = @(Get-NetAdapter -IncludeHidden | Where-Object { $_.ComponentID -eq 'root\softndk' })
    foreach ($adapter in $found) {
        Set-NetAdapterAdvancedProperty -Name $adapter.Name -RegistryKeyword 'WireNumber' -RegistryValue $WireNumber
    }
    $found | Format-Table Name, InterfaceDescription, ifIndex, Status, MacAddress
    if ($found.Count -lt $Adapters) {
        throw "$($found.Count) of $Adapters adapters came up; details in $env:windir\INF\setupapi.dev.log"
    }
    'Next: give each adapter an address (New-NetIPAddress), then look with "ndkctl info" and Get-NetAdapterRdma.'
}
