<#
.SYNOPSIS
    Installs, upgrades or uninstalls softndk on a test machine, or sets Driver Verifier on drivers.

.DESCRIPTION
    -Install    trusts a certificate that it makes, signs the driver package on this machine, installs it, makes adapters, gives them
                names and addresses, installs ndktest.sys and softnd.dll, and ends with "ndkctl doctor". It can be run again at any
                point: it does what is missing, and sets names, addresses and wire number of its own adapters again. With -Peer
                they reach the adapters of other machines: by VXLAN, and with RDMA by iWARP.
    -Upgrade    replaces drivers, DLL and tools by those of this package. Adapters stay, with all their settings.
    -Uninstall  removes everything that -Install made and checks that it is gone.
    -Verify     turns Driver Verifier on for the named drivers: softndk.sys, ndktest.sys or your own. -VerifyOff turns it off.

    With -WhatIf nothing changes. What happened is written to -Log. Nothing but what Windows has is needed: no WDK.

    Exit codes:
       0  done
       1  failed; the last message and the log say why
       2  not elevated
       3  this Windows or this PowerShell does not fit: build before 19041, other architecture
       4  test signing is not in force, or Secure Boot is on
       5  the package is incomplete or damaged, or there is nothing to upgrade
       6  an adapter did not come up within the time-out
       7  something is left after -Uninstall; run it again
       8  installed, but "ndkctl doctor" reports an error
    3010  done; restart Windows

    Not yet run on Windows. On Linux it is parsed, and rules about it are tested (docs/windows.md).

.EXAMPLE
    .\setup.ps1 -Install

.EXAMPLE
    .\setup.ps1 -Install -Adapters 4 -Address 10.1.0.1, 10.1.0.2, 10.1.0.3, 10.1.0.4

.EXAMPLE
    .\setup.ps1 -Install -Adapters 1 -Address 10.77.0.1 -WireNumber 7 -Peer 192.168.5.12

.EXAMPLE
    .\setup.ps1 -Verify softndk.sys, ndktest.sys -WithNdis
#>
#Requires -Version 5.1
[CmdletBinding(SupportsShouldProcess)]
param(
    [Parameter(Mandatory, ParameterSetName = 'Install')] [switch] $Install,
    [Parameter(Mandatory, ParameterSetName = 'Upgrade')] [switch] $Upgrade,
    [Parameter(Mandatory, ParameterSetName = 'Uninstall')] [switch] $Uninstall,
    # File names of drivers, separated by commas.
    [Parameter(Mandatory, ParameterSetName = 'Verify')] [string[]] $Verify,
    [Parameter(Mandatory, ParameterSetName = 'VerifyOff')] [switch] $VerifyOff,

    # Folder of the unpacked zip.
    [Parameter(ParameterSetName = 'Install')]
    [Parameter(ParameterSetName = 'Upgrade')]
    [string] $Package = $PSScriptRoot,
    # How many adapters there are afterwards, those that are there already included. Not given: two, or as many as there are.
    [Parameter(ParameterSetName = 'Install')] [ValidateRange(1, 32)] [int] $Adapters = 2,
    # IPv4 addresses of the adapters, in order; those beyond the list get 10.77.0.NUMBER.
    [Parameter(ParameterSetName = 'Install')] [string[]] $Address = @(),
    [Parameter(ParameterSetName = 'Install')] [ValidateRange(1, 31)] [int] $PrefixLength = 24,
    # Adapters with equal wire numbers reach each other.
    [Parameter(ParameterSetName = 'Install')] [ValidateRange(0, 65535)] [int] $WireNumber = 0,
    # Addresses of other machines' real network cards: all machines of a wire name each other.
    [Parameter(ParameterSetName = 'Install')] [string[]] $Peer = @(),
    # How long to wait for adapters and services, in seconds.
    [Parameter(ParameterSetName = 'Install')]
    [Parameter(ParameterSetName = 'Upgrade')]
    [Parameter(ParameterSetName = 'Uninstall')]
    [ValidateRange(1, 3600)] [int] $Timeout = 60,

    # The bits of Driver Verifier; the default is the standard set and the NDIS checks. What each bit does is shown.
    [Parameter(ParameterSetName = 'Verify')] [uint32] $Flags = 0x2209BB,
    # Verify ndis.sys as well: finds misuse of NDIS at its border, and slows every network adapter down.
    [Parameter(ParameterSetName = 'Verify')] [switch] $WithNdis,

    # The log, to which each run is appended. It stays after -Uninstall.
    [string] $Log = (Join-Path $env:TEMP 'softndk-setup.log')
)

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$ExitDone = 0
$ExitFailed = 1
$ExitNotElevated = 2
$ExitSystem = 3
$ExitTestSigning = 4
$ExitPackage = 5
$ExitAdapter = 6
$ExitLeftBehind = 7
$ExitDoctor = 8
$ExitRestart = 3010

$HardwareId = 'root\softndk'
$CertificateSubject = 'CN=softndk test signing'
$Folder = Join-Path $env:ProgramFiles 'softndk'
$StateFile = Join-Path $Folder 'state.json'
$TestDriver = Join-Path $env:SystemRoot 'System32\drivers\ndktest.sys'
$UplinkRule = 'softndk-uplink'
$ConnectionRule = 'softndk-connections'
$Services = 'HKLM:\SYSTEM\CurrentControlSet\Services'
$RestartWanted = $false

# Driver Verifier's bits. What is deprecated or does nothing on build 19041 and later is left out, and refused.
$VerifierFlags = @(
    @{ Bit = 0x1; Does = 'special pool: each allocation at the edge of a page, so that an access beyond it is a bugcheck' }
    @{ Bit = 0x2; Does = 'force IRQL checking: paged memory is trimmed whenever the IRQL rises' }
    @{ Bit = 0x4; Does = 'low resources: allocations fail at random' }
    @{ Bit = 0x8; Does = 'pool tracking: what is still allocated at unload is a bugcheck' }
    @{ Bit = 0x10; Does = 'I/O verification: IRPs come from a pool of their own and are checked' }
    @{ Bit = 0x20; Does = 'deadlock detection: the order of locks' }
    @{ Bit = 0x80; Does = 'DMA checking' }
    @{ Bit = 0x100; Does = 'security checks: user addresses and handles in kernel calls' }
    @{ Bit = 0x200; Does = 'force pending: calls below the driver answer STATUS_PENDING' }
    @{ Bit = 0x400; Does = 'IRP logging' }
    @{ Bit = 0x800; Does = 'miscellaneous: memory that is freed with a live object in it' }
    @{ Bit = 0x2000; Does = 'invariant MDLs for the stack: a read buffer that changes is a bugcheck' }
    @{ Bit = 0x4000; Does = 'invariant MDLs for the driver: the same for the MDLs that it is given' }
    @{ Bit = 0x20000; Does = 'DDI compliance: the rules for calls of the kernel' }
    @{ Bit = 0x200000; Does = 'NDIS and Wi-Fi: OIDs that are lost, late or completed twice' }
    @{ Bit = 0x2000000; Does = 'code integrity: no memory that is writable and executable' }
)

# ---- Errors, tools, waiting ----

function Stop-Setup([int] $Code, [string] $Message) {
    $failure = [InvalidOperationException]::new($Message)
    $failure.Data['ExitCode'] = $Code
    throw $failure
}

function Write-Step([string] $Text) {
    Write-Host "setup: $Text"
}

# Runs a program. Its output, errors included, goes to the log; an exit code that is not among $Success ends the script. 3010 means that
# Windows wants a restart.
function Invoke-Tool([string] $Tool, [string[]] $Arguments, [int[]] $Success = @(0)) {
    Write-Host "> $Tool $($Arguments -join ' ')"
    # A line on the error stream would be an exception otherwise.
    $ErrorActionPreference = 'Continue'
    & $Tool @Arguments 2>&1 | ForEach-Object { "$_" } | Out-Host
    $code = $LASTEXITCODE
    if ($code -eq 3010) {
        $script:RestartWanted = $true
    } elseif ($Success -notcontains $code) {
        Stop-Setup $ExitFailed "$Tool ended with exit code $code. Windows' own log of drivers is $env:SystemRoot\INF\setupapi.dev.log"
    }
}

# Asks until the answer is true; false when the time is over.
function Wait-Until([scriptblock] $Condition) {
    $watch = [Diagnostics.Stopwatch]::StartNew()
    while (-not (& $Condition)) {
        if ($watch.Elapsed.TotalSeconds -gt $Timeout) { return $false }
        Start-Sleep -Milliseconds 500
    }
    return $true
}

# A value of the registry, or $null.
function Get-RegistryValue([string] $Path, [string] $Name) {
    $key = Get-ItemProperty -Path $Path -Name $Name -ErrorAction SilentlyContinue
    if ($key) { $key.$Name } else { $null }
}

# ---- What this machine has to be ----

function Assert-Elevated {
    $principal = [Security.Principal.WindowsPrincipal] [Security.Principal.WindowsIdentity]::GetCurrent()
    if (-not $principal.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)) {
        Stop-Setup $ExitNotElevated 'Not elevated: start PowerShell with "Run as administrator" and run this again.'
    }
}

function Assert-System([string] $Architecture) {
    $build = [Environment]::OSVersion.Version.Build
    if ($build -lt 19041) {
        Stop-Setup $ExitSystem "This is Windows build $build; softndk needs 19041 or later (Windows 10 2004, Server 2022)."
    }
    $native = Get-RegistryValue 'HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Environment' 'PROCESSOR_ARCHITECTURE'
    if ($env:PROCESSOR_ARCHITECTURE -ne $native) {
        Stop-Setup $ExitSystem "This PowerShell is for $env:PROCESSOR_ARCHITECTURE, Windows for ${native}: start the one in $env:SystemRoot\System32."
    }
    $names = @{ AMD64 = 'x64'; ARM64 = 'arm64' }
    if ($names[$native] -ne $Architecture) {
        Stop-Setup $ExitSystem "This package is for $Architecture, this machine is ${native}: take the other zip."
    }
}

# What is in force now. The boot entry that bcdedit shows may differ: it counts from the next start on.
function Assert-TestSigning {
    $secureBoot = Get-RegistryValue 'HKLM:\SYSTEM\CurrentControlSet\Control\SecureBoot\State' 'UEFISecureBootEnabled'
    if ($secureBoot -eq 1) {
        Stop-Setup $ExitTestSigning 'Secure Boot is on, which excludes test signing: turn it off in the settings of the virtual machine.'
    }
    $options = Get-RegistryValue 'HKLM:\SYSTEM\CurrentControlSet\Control' 'SystemStartOptions'
    if ($options -notmatch '\bTESTSIGNING\b') {
        Stop-Setup $ExitTestSigning 'Test signing is not in force: run "bcdedit.exe /set testsigning on", restart, and run this again.'
    }
}

# ---- The package ----

# Reads package.json of the zip, after every file of it was compared with SHA256SUMS.
function Read-Package {
    $description = Join-Path $Package 'package.json'
    if (-not (Test-Path $description)) {
        Stop-Setup $ExitPackage "$description is missing: unpack the zip, and run its setup.ps1 or name its folder with -Package."
    }
    if ((Resolve-Path $Package).Path -ne $Folder) { Assert-Checksum }
    Get-Content $description -Raw | ConvertFrom-Json
}

function Assert-Checksum {
    foreach ($line in Get-Content (Join-Path $Package 'SHA256SUMS')) {
        $expected, $name = $line -split '  ', 2
        $file = Join-Path $Package $name
        if (-not (Test-Path $file)) { Stop-Setup $ExitPackage "$name is missing from ${Package}: unpack the zip again." }
        if ((Get-FileHash $file -Algorithm SHA256).Hash -ne $expected) {
            Stop-Setup $ExitPackage "$name is not the file of the package: unpack the zip again."
        }
    }
}

# ---- The list of what was made ----

# Empty when nothing was installed.
function Read-State {
    if (Test-Path $StateFile) { return Get-Content $StateFile -Raw | ConvertFrom-Json }
    [pscustomobject]@{ Package = ''; Records = @(); Adapters = @(); AddingBeside = $null }
}

function Save-State {
    New-Item -ItemType Directory -Path $Folder -Force | Out-Null
    ConvertTo-Json $State -Depth 4 | Set-Content $StateFile -Encoding UTF8
}

# Called before the thing is made: a run that is cut short leaves a list that has too much, never too little.
function Add-Record([string] $Kind, [string] $Value) {
    $known = @($State.Records | Where-Object { $_.Kind -eq $Kind -and $_.Value -eq $Value })
    if ($known.Count -eq 0) {
        $State.Records = @($State.Records) + [pscustomobject]@{ Kind = $Kind; Value = $Value }
        Save-State
    }
}

# What -Install always makes, for when its list is lost.
function Get-StandardRecord {
    [pscustomobject]@{ Kind = 'Provider'; Value = 'softnd.dll' }
    [pscustomobject]@{ Kind = 'Device'; Value = $HardwareId }
    [pscustomobject]@{ Kind = 'FirewallRule'; Value = $UplinkRule }
    [pscustomobject]@{ Kind = 'FirewallRule'; Value = $ConnectionRule }
    [pscustomobject]@{ Kind = 'Package'; Value = 'softndk.inf' }
    [pscustomobject]@{ Kind = 'Service'; Value = 'softndk' }
    [pscustomobject]@{ Kind = 'Service'; Value = 'ndktest' }
    [pscustomobject]@{ Kind = 'EventSource'; Value = 'softndk' }
    [pscustomobject]@{ Kind = 'File'; Value = $TestDriver }
    [pscustomobject]@{ Kind = 'Certificate'; Value = $CertificateSubject }
    [pscustomobject]@{ Kind = 'Folder'; Value = $Folder }
}

# ---- Files and signatures ----

# Copies the package to where it stays, signs the copy and makes its catalogue. Once a package: the state has the hash of its list.
function Copy-Package {
    if ((Resolve-Path $Package).Path -eq $Folder) { return }
    $sums = Join-Path $Package 'SHA256SUMS'
    $identity = (Get-FileHash $sums -Algorithm SHA256).Hash
    if ($State.Package -eq $identity -and (Test-Signed)) {
        Write-Step "the files in $Folder are those of this package"
        return
    }
    if ($PSCmdlet.ShouldProcess($Folder, 'copy the package, sign the drivers with a new certificate, trust it')) {
        Add-Record 'Folder' $Folder
        # Until all is copied and signed, the files belong to no package.
        $State.Package = ''
        Save-State
        foreach ($line in Get-Content $sums) {
            $name = ($line -split '  ', 2)[1]
            Copy-Item (Join-Path $Package $name) (Join-Path $Folder $name) -Force
        }
        Copy-Item $sums $Folder -Force
        # Files of a downloaded zip carry the mark of the web.
        Get-ChildItem $Folder | Unblock-File
        New-Signature
        $State.Package = $identity
        Save-State
    }
}

function Test-Signed {
    foreach ($name in 'softndk.sys', 'ndktest.sys', 'softndk.cat') {
        $file = Join-Path $Folder $name
        if (-not (Test-Path $file) -or (Get-AuthenticodeSignature $file).Status -ne 'Valid') { return $false }
    }
    return $true
}

# Signs what is not validly signed yet, then makes the catalogue and signs it. The private key is deleted at once: what the machine trusts
# afterwards can sign nothing more.
function New-Signature {
    Add-Record 'Certificate' $CertificateSubject
    $certificate = New-SelfSignedCertificate -Type CodeSigningCert -Subject $CertificateSubject -HashAlgorithm SHA256 `
        -CertStoreLocation Cert:\LocalMachine\My -KeyExportPolicy NonExportable -NotAfter (Get-Date).AddYears(5)
    $exported = Join-Path $Folder 'softndk.cer'
    Export-Certificate -Cert $certificate -FilePath $exported | Out-Null
    Import-Certificate -FilePath $exported -CertStoreLocation Cert:\LocalMachine\Root | Out-Null
    Import-Certificate -FilePath $exported -CertStoreLocation Cert:\LocalMachine\TrustedPublisher | Out-Null

    $driver = Join-Path $Folder 'softndk.sys'
    $catalog = Join-Path $Folder 'softndk.cat'
    foreach ($image in $driver, (Join-Path $Folder 'ndktest.sys')) {
        if ((Get-AuthenticodeSignature $image).Status -ne 'Valid') { Set-Signature $image $certificate }
    }
    # After the image is signed: the catalogue has the hashes of the finished files.
    New-FileCatalog -Path (Join-Path $Folder 'softndk.inf'), $driver -CatalogFilePath $catalog -CatalogVersion 2 | Out-Null
    Set-Signature $catalog $certificate
    Remove-Item "Cert:\LocalMachine\My\$($certificate.Thumbprint)" -DeleteKey
}

function Set-Signature([string] $File, $Certificate) {
    $signature = Set-AuthenticodeSignature -FilePath $File -Certificate $Certificate -HashAlgorithm SHA256
    if ($signature.Status -ne 'Valid') {
        Stop-Setup $ExitFailed "$File cannot be signed: $($signature.StatusMessage)"
    }
}

# ---- The drivers ----

# The packages of softndk in the driver store. Not from pnputil, whose output is translated.
function Get-DriverPackage {
    Get-WindowsDriver -Online | Where-Object { (Split-Path $_.OriginalFileName -Leaf) -eq 'softndk.inf' }
}

function Install-DriverPackage {
    if ($PSCmdlet.ShouldProcess('softndk.inf', 'add the driver package, and update the adapters that are there')) {
        Add-Record 'Package' 'softndk.inf'
        # These two come from the INF.
        Add-Record 'Service' 'softndk'
        Add-Record 'EventSource' 'softndk'
        # 259: no device takes it, because none is there yet or all have it.
        Invoke-Tool 'pnputil.exe' @('/add-driver', (Join-Path $Folder 'softndk.inf'), '/install') @(0, 259)
    }
}

# Packages of other versions, and certificates that signed them, are of no use any more.
function Remove-Superseded([string] $DriverVersion) {
    foreach ($old in @(Get-DriverPackage | Where-Object { $_.Version -ne $DriverVersion })) {
        if ($PSCmdlet.ShouldProcess("$($old.Driver), version $($old.Version)", 'delete the superseded driver package')) {
            Invoke-Tool 'pnputil.exe' @('/delete-driver', $old.Driver)
        }
    }
    $used = (Get-AuthenticodeSignature (Join-Path $Folder 'softndk.cat')).SignerCertificate.Thumbprint
    foreach ($old in @(Get-TestCertificate $CertificateSubject | Where-Object { $_.Thumbprint -ne $used })) {
        if ($PSCmdlet.ShouldProcess($old.PSPath, 'remove the superseded certificate')) { Remove-Item $old.PSPath }
    }
}

function Get-DriverState([string] $Name) {
    $driver = Get-CimInstance -ClassName Win32_SystemDriver -Filter "Name = '$Name'"
    if ($driver) { $driver.State } else { 'Absent' }
}

# ndktest.sys, the NDK consumer behind ndkctl: no device and no INF, a service that is started by hand.
function Install-TestDriver {
    if ($PSCmdlet.ShouldProcess('ndktest', 'install and start the driver')) {
        Add-Record 'File' $TestDriver
        Add-Record 'Service' 'ndktest'
        Stop-Driver 'ndktest'
        Copy-Item (Join-Path $Folder 'ndktest.sys') $TestDriver -Force
        if (-not (Test-Path "$Services\ndktest")) {
            Invoke-Tool 'sc.exe' @('create', 'ndktest', 'type=', 'kernel', 'start=', 'demand', 'binPath=', $TestDriver)
        }
        # 1056: it runs already.
        Invoke-Tool 'sc.exe' @('start', 'ndktest') @(0, 1056)
    }
}

function Stop-Driver([string] $Name) {
    if ((Get-DriverState $Name) -ne 'Running') { return }
    Invoke-Tool 'sc.exe' @('stop', $Name) @(0, 1062)
    if (-not (Wait-Until { (Get-DriverState $Name) -ne 'Running' })) {
        Stop-Setup $ExitFailed "$Name does not stop: close ndkctl and what else uses it, and run this again."
    }
}

# ---- Adapters ----

function Get-Device {
    Get-PnpDevice -Class Net -ErrorAction SilentlyContinue | Where-Object { @($_.HardwareID) -contains $HardwareId }
}

# The network adapters of these devices, in the order of their instance ids.
function Get-DeviceAdapter([string[]] $Instances) {
    Get-NetAdapter -IncludeHidden | Where-Object { $Instances -contains $_.PnPDeviceID } | Sort-Object PnPDeviceID
}

# Brings the number of adapters to what was asked for. Those that this script makes are its own; it changes no others.
function Set-AdapterCount([bool] $Exactly) {
    Complete-Adding
    $present = @(Get-Device | ForEach-Object { $_.InstanceId })
    $missing = $Adapters - $present.Count
    if ($missing -gt 0) {
        if ($PSCmdlet.ShouldProcess("$missing adapters", "make, beside the $($present.Count) that are there")) {
            Add-Record 'Device' $HardwareId
            $State.AddingBeside = $present
            Save-State
            Invoke-Tool $Ndkctl @('adapter', 'add', '--count', "$Adapters")
            Complete-Adding
        }
    } elseif ($missing -lt 0 -and $Exactly) {
        Remove-SurplusAdapter (-$missing)
    } else {
        Write-Step "$($present.Count) adapters are there already"
    }
}

# What came since the list was written is ours, also when the run that added it was cut short.
function Complete-Adding {
    if ($null -eq $State.AddingBeside) { return }
    $before = @($State.AddingBeside)
    $added = @(Get-Device | ForEach-Object { $_.InstanceId } | Where-Object { $before -notcontains $_ })
    if ($PSCmdlet.ShouldProcess($StateFile, "note $($added.Count) adapters as made by setup")) {
        $State.Adapters = @(@($State.Adapters) + $added | Sort-Object -Unique)
        $State.AddingBeside = $null
        Save-State
    }
}

# The last of its own go; adapters that were made otherwise stay.
function Remove-SurplusAdapter([int] $Count) {
    foreach ($instance in @($State.Adapters | Sort-Object -Descending | Select-Object -First $Count)) {
        if ($PSCmdlet.ShouldProcess($instance, 'remove the adapter')) {
            Invoke-Tool $Ndkctl @('adapter', 'remove', $instance)
            $State.Adapters = @($State.Adapters | Where-Object { $_ -ne $instance })
            Save-State
        }
    }
}

function Wait-Adapter {
    if ($WhatIfPreference) { return }
    $wanted = @($State.Adapters)
    $allUp = { @(Get-DeviceAdapter $wanted | Where-Object { $_.Status -eq 'Up' }).Count -ge $wanted.Count }
    if (-not (Wait-Until $allUp)) {
        Get-DeviceAdapter $wanted | Format-Table Name, InterfaceDescription, Status, PnPDeviceID | Out-Host
        Stop-Setup $ExitAdapter "Not all adapters are up after $Timeout s. See $env:SystemRoot\INF\setupapi.dev.log and the System event log."
    }
}

# Names, wire numbers and addresses of its own adapters.
function Set-Adapter {
    $own = @(Get-DeviceAdapter @($State.Adapters))
    foreach ($adapter in $own) { Set-AdapterName $adapter }
    # The names are other ones now.
    foreach ($adapter in @(Get-DeviceAdapter @($State.Adapters))) {
        Set-AdapterWire $adapter
        Set-AdapterAddress $adapter
    }
}

function Set-AdapterName($Adapter) {
    if ($Adapter.Name -match '^softndk \d+$') { return }
    $taken = @(Get-NetAdapter -IncludeHidden | ForEach-Object { $_.Name })
    $number = 1
    while ($taken -contains "softndk $number") { $number++ }
    if ($PSCmdlet.ShouldProcess($Adapter.Name, "name it softndk $number")) {
        Rename-NetAdapter -Name $Adapter.Name -NewName "softndk $number"
    }
}

function Set-AdapterWire($Adapter) {
    $now = Get-NetAdapterAdvancedProperty -Name $Adapter.Name -RegistryKeyword 'WireNumber'
    if ("$($now.RegistryValue)" -eq "$WireNumber") { return }
    if ($PSCmdlet.ShouldProcess($Adapter.Name, "put it on wire $WireNumber")) {
        Set-NetAdapterAdvancedProperty -Name $Adapter.Name -RegistryKeyword 'WireNumber' -RegistryValue $WireNumber
    }
}

function Set-AdapterAddress($Adapter) {
    $number = [int] ($Adapter.Name -replace '\D', '')
    $wanted = if ($number -le $Address.Count) { $Address[$number - 1] } else { "10.77.0.$number" }
    $index = $Adapter.ifIndex
    $now = @(Get-NetIPAddress -InterfaceIndex $index -AddressFamily IPv4 -ErrorAction SilentlyContinue)
    if ($now.Count -eq 1 -and $now[0].IPAddress -eq $wanted -and $now[0].PrefixLength -eq $PrefixLength) { return }
    if ($PSCmdlet.ShouldProcess($Adapter.Name, "address $wanted/$PrefixLength, no DHCP")) {
        Set-NetIPInterface -InterfaceIndex $index -AddressFamily IPv4 -Dhcp Disabled
        foreach ($old in $now) {
            Remove-NetIPAddress -InterfaceIndex $index -IPAddress $old.IPAddress -Confirm:$false
        }
        New-NetIPAddress -InterfaceIndex $index -IPAddress $wanted -PrefixLength $PrefixLength | Out-Null
    }
}

# ---- Other machines ----

# RDMA by iWARP, frames by VXLAN. Without -Peer what is set stays.
function Join-Wire {
    # Called with -File, PowerShell hands over "1.2.3.4,1.2.3.5" as one text.
    $peers = @($Peer -split ',' | ForEach-Object { $_.Trim() } | Where-Object { $_ })
    if ($peers.Count -eq 0) { return }
    $own = @(Get-DeviceAdapter @($State.Adapters) | ForEach-Object { $_.Name })
    foreach ($name in $own) {
        if ($PSCmdlet.ShouldProcess($name, 'connect to other machines by iWARP')) {
            Set-NetAdapterAdvancedProperty -Name $name -RegistryKeyword 'Transport' -RegistryValue 1
        }
    }
    Set-FirewallRule $peers $own
    # ndkctl asks the driver for its adapters.
    Wait-Adapter
    $list = $peers -join ','
    if ($PSCmdlet.ShouldProcess("wire $WireNumber", "join the machines $list")) {
        Invoke-Tool $Ndkctl @('wire', 'join', "$WireNumber", '--peer', $list)
    }
}

# Lets in VXLAN from the peers, and what comes on the adapters to listeners of kernel mode, which are the process System for the firewall.
function Set-FirewallRule([string[]] $Peers, [string[]] $Names) {
    if ($PSCmdlet.ShouldProcess("UDP port 4789 from $($Peers -join ', '), and TCP on $($Names -join ', ')", 'allow through the firewall')) {
        Add-Record 'FirewallRule' $UplinkRule
        Add-Record 'FirewallRule' $ConnectionRule
        # Those of an earlier run may have other addresses.
        Get-NetFirewallRule -Name $UplinkRule, $ConnectionRule -ErrorAction SilentlyContinue | Remove-NetFirewallRule
        New-NetFirewallRule -Name $UplinkRule -DisplayName 'softndk: VXLAN' -Direction Inbound -Protocol UDP -LocalPort 4789 -RemoteAddress $Peers -Action Allow | Out-Null
        New-NetFirewallRule -Name $ConnectionRule -DisplayName 'softndk: RDMA connections' -Direction Inbound -Protocol TCP -Program System -InterfaceAlias $Names -RemoteAddress LocalSubnet -Action Allow | Out-Null
    }
}

# ---- User-mode NetworkDirect ----

# There is no softnd.dll for arm64.
function Install-Provider {
    $library = Join-Path $Folder 'softnd.dll'
    if (-not (Test-Path $library)) { return }
    if ($PSCmdlet.ShouldProcess($library, 'enter the provider in the Winsock catalogue')) {
        Add-Record 'Provider' 'softnd.dll'
        Invoke-Tool $Ndkctl @('nd', 'install', '--dll', $library)
    }
}

# ---- Uninstall: one clause a kind of record ----

# Uninstall goes through the kinds in this order: a provider before its DLL, devices before their driver, the folder with the list last.
$RemovalOrder = @('Provider', 'Device', 'FirewallRule', 'Package', 'Service', 'EventSource', 'File', 'Certificate', 'Folder')

function Remove-Record([string] $Kind, [string] $Value) {
    switch ($Kind) {
        'Provider' { Invoke-Tool $Ndkctl @('nd', 'remove') }
        'Device' { Invoke-Tool $Ndkctl @('adapter', 'remove', '--all') }
        'FirewallRule' { Remove-NetFirewallRule -Name $Value }
        'Package' {
            foreach ($stored in @(Get-DriverPackage)) {
                Invoke-Tool 'pnputil.exe' @('/delete-driver', $stored.Driver, '/uninstall')
            }
        }
        'Service' {
            Stop-Driver $Value
            # 1072: it is marked for deletion already.
            Invoke-Tool 'sc.exe' @('delete', $Value) @(0, 1060, 1072)
        }
        'EventSource' { Remove-Item "$Services\EventLog\System\$Value" -Recurse }
        'File' { Remove-Item $Value -Force }
        'Certificate' { Remove-TestCertificate $Value }
        'Folder' {
            # The current folder of a process cannot be deleted.
            Set-Location $env:SystemRoot
            Remove-Item $Value -Recurse -Force
        }
        default { Stop-Setup $ExitFailed "$StateFile has a record of the unknown kind $Kind" }
    }
}

# Whether the thing is still there.
function Test-Record([string] $Kind, [string] $Value) {
    switch ($Kind) {
        'Provider' { @(Get-ProviderEntry).Count -gt 0 }
        'Device' { @(Get-Device).Count -gt 0 }
        'FirewallRule' { @(Get-NetFirewallRule -Name $Value -ErrorAction SilentlyContinue).Count -gt 0 }
        'Package' { @(Get-DriverPackage).Count -gt 0 }
        'Service' { Test-Path "$Services\$Value" }
        'EventSource' { Test-Path "$Services\EventLog\System\$Value" }
        'File' { Test-Path $Value }
        'Certificate' { @(Get-TestCertificate $Value).Count -gt 0 }
        'Folder' { Test-Path $Value }
        default { $true }
    }
}

# Where Winsock keeps its catalogue: each entry's path is the first thing in its packed value.
function Get-ProviderEntry {
    $parameters = "$Services\WinSock2\Parameters"
    $catalog = Get-RegistryValue $parameters 'Current_Protocol_Catalog'
    Get-ChildItem "$parameters\$catalog\Catalog_Entries64" | Where-Object {
        $packed = Get-RegistryValue $_.PSPath 'PackedCatalogItem'
        $packed -and [Text.Encoding]::ASCII.GetString($packed, 0, 260) -match '\\softnd\.dll'
    }
}

# In every store where -Install puts one.
function Get-TestCertificate([string] $Subject) {
    foreach ($store in 'My', 'Root', 'TrustedPublisher') {
        Get-ChildItem "Cert:\LocalMachine\$store" | Where-Object { $_.Subject -eq $Subject }
    }
}

function Remove-TestCertificate([string] $Subject) {
    foreach ($certificate in @(Get-TestCertificate $Subject)) {
        # One with its private key is left where a run was cut short.
        if ($certificate.HasPrivateKey) { Remove-Item $certificate.PSPath -DeleteKey } else { Remove-Item $certificate.PSPath }
    }
}

# Removes what the list has; what is still there afterwards is named. The folder, with the list and ndkctl in it, goes when all else has gone.
function Uninstall-Softndk {
    $records = @($State.Records)
    if ($records.Count -eq 0) { $records = @(Get-StandardRecord) }
    foreach ($kind in $RemovalOrder) {
        foreach ($record in @($records | Where-Object { $_.Kind -eq $kind })) {
            if ($kind -eq 'Folder' -and @(Get-Remaining $records).Count -gt 1) { continue }
            if (-not (Test-Record $kind $record.Value)) { continue }
            if ($PSCmdlet.ShouldProcess("$kind $($record.Value)", 'remove')) {
                # One that cannot be removed does not keep the others.
                try { Remove-Record $kind $record.Value } catch { Write-Step "$kind $($record.Value): $($_.Exception.Message)" }
            }
        }
    }
    if ($WhatIfPreference) { return }
    $left = @(Get-Remaining $records)
    foreach ($record in $left) { Write-Step "still there: $($record.Kind) $($record.Value)" }
    if ($left.Count -gt 0 -and -not $RestartWanted) {
        Stop-Setup $ExitLeftBehind 'Close what uses the adapters, or restart, and run -Uninstall again.'
    }
    Write-Step "$($records.Count - $left.Count) of $($records.Count) things that -Install makes are gone"
}

function Get-Remaining($Records) {
    $Records | Where-Object { Test-Record $_.Kind $_.Value }
}

# ---- Driver Verifier ----

function Enable-Verifier {
    # Called with -File, PowerShell hands over "a.sys,b.sys" as one text.
    $drivers = @($Verify -split ',' | ForEach-Object { $_.Trim() })
    if ($WithNdis) { $drivers += 'ndis.sys' }
    foreach ($driver in $drivers) {
        if ($driver -notmatch '^[\w.-]+\.sys$') { Stop-Setup $ExitFailed "`"$driver`" is not the file name of a driver, such as softndk.sys" }
    }
    Show-VerifierFlag
    $bits = '0x{0:X}' -f $Flags
    if ($PSCmdlet.ShouldProcess(($drivers -join ', '), "verify with flags $bits")) {
        # 2: set, from the next start on.
        Invoke-Tool 'verifier.exe' (@('/flags', $bits, '/driver') + $drivers) @(0, 2)
        $script:RestartWanted = $true
        Write-Step 'restart to begin. If Windows then stops at every start, start it in safe mode and run "verifier.exe /reset".'
        Write-Step '"verifier.exe /query" shows the counters, "verifier.exe /querysettings" the flags.'
    }
}

function Show-VerifierFlag {
    [uint32] $rest = $Flags
    foreach ($flag in $VerifierFlags) {
        if ($Flags -band $flag.Bit) {
            Write-Step ('0x{0:X} {1}' -f $flag.Bit, $flag.Does)
            $rest = $rest -bxor $flag.Bit
        }
    }
    if ($rest -ne 0) { Stop-Setup $ExitFailed ('-Flags has 0x{0:X}, which is no check of Driver Verifier' -f $rest) }
}

function Disable-Verifier {
    if ($PSCmdlet.ShouldProcess('all drivers', 'stop verifying')) {
        Invoke-Tool 'verifier.exe' @('/reset') @(0, 2)
        $script:RestartWanted = $true
    }
}

# ---- The commands ----

function Install-Softndk([bool] $Configure, [bool] $Exactly) {
    $description = Read-Package
    Assert-System $description.architecture
    Assert-TestSigning
    Write-Step "softndk $($description.version), commit $($description.commit), driver $($description.driver_version), $($description.architecture)"
    Copy-Package
    Install-DriverPackage
    if ($Configure) { Set-AdapterCount $Exactly }
    Wait-Adapter
    if ($Configure) {
        Set-Adapter
        Join-Wire
        # A new wire number restarts the adapter, and so does joining.
        Wait-Adapter
    }
    Install-TestDriver
    Install-Provider
    if ($WhatIfPreference) { return }
    Remove-Superseded $description.driver_version
    Get-DeviceAdapter @(Get-Device | ForEach-Object { $_.InstanceId }) | Format-Table Name, Status, LinkSpeed, MacAddress, ifIndex | Out-Host
    Invoke-Doctor
}

function Invoke-Doctor {
    & $Ndkctl doctor | Out-Host
    # 8: warnings, which are shown.
    if (@(0, 8) -notcontains $LASTEXITCODE) {
        Stop-Setup $ExitDoctor "softndk is installed, but ndkctl doctor reports an error (exit code $LASTEXITCODE); its lines say what to do."
    }
}

$exitCode = $ExitDone
$logging = $false
try {
    Assert-Elevated
    if (-not $WhatIfPreference) {
        Start-Transcript -Path $Log -Append | Out-Null
        $logging = $true
    }
    $State = Read-State
    # The installed tool; before the first installation, and when the folder has lost it, the one of this package.
    $Ndkctl = Join-Path $Folder 'ndkctl.exe'
    if (-not (Test-Path $Ndkctl) -and $Uninstall) { $Ndkctl = Join-Path $PSScriptRoot 'ndkctl.exe' }

    if ($Install) {
        Install-Softndk $true ($PSBoundParameters.ContainsKey('Adapters'))
    } elseif ($Upgrade) {
        if (@($State.Records).Count -eq 0) { Stop-Setup $ExitPackage "Nothing is installed in ${Folder}: run -Install." }
        Install-Softndk $false $false
    } elseif ($Uninstall) {
        Uninstall-Softndk
    } elseif ($VerifyOff) {
        Disable-Verifier
    } else {
        Enable-Verifier
    }
    if ($RestartWanted) {
        Write-Step 'restart Windows to finish'
        $exitCode = $ExitRestart
    } elseif (-not $WhatIfPreference) {
        Write-Step 'done'
    }
} catch {
    $exitCode = $ExitFailed
    if ($_.Exception.Data.Contains('ExitCode')) { $exitCode = $_.Exception.Data['ExitCode'] }
    Write-Host "setup: $($_.Exception.Message)" -ForegroundColor Red
    if ($exitCode -eq $ExitFailed) { Write-Host $_.ScriptStackTrace }
    if ($logging) { Write-Host "setup: the log is $Log" }
} finally {
    if ($logging) { Stop-Transcript | Out-Null }
}
exit $exitCode
