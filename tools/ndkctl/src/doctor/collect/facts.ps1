# Facts for ndkctl doctor, as one JSON document. What cannot be read is null. Without double quotes: it is passed as an argument.
$ErrorActionPreference = 'SilentlyContinue'
$ProgressPreference = 'SilentlyContinue'
[Console]::OutputEncoding = [Text.UTF8Encoding]::new($false)

# A state of Win32_SystemDriver, or Absent.
function Get-DriverState($Driver) {
    if ($null -eq $Driver) { return 'Absent' }
    return [string] $Driver.State
}

$principal = [Security.Principal.WindowsPrincipal] [Security.Principal.WindowsIdentity]::GetCurrent()
$drivers = @(Get-CimInstance Win32_SystemDriver)
$provider = $drivers | Where-Object { $_.Name -eq 'softndk' } | Select-Object -First 1
$consumer = $drivers | Where-Object { $_.Name -eq 'ndktest' } | Select-Object -First 1

# The registry value is absent on computers with a BIOS.
$secureBoot = (Get-ItemProperty 'HKLM:\SYSTEM\CurrentControlSet\Control\SecureBoot\State').UEFISecureBootEnabled
$memory = Get-ItemProperty 'HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management'
$global = Get-NetOffloadGlobalSetting

# The service has the path as the kernel writes it.
$trusted = $null
if ($provider.PathName) {
    $image = $provider.PathName.Replace('\??\', '').Replace('\SystemRoot\', $env:SystemRoot + '\')
    if (Test-Path -LiteralPath $image) { $trusted = (Get-AuthenticodeSignature -LiteralPath $image).Status -eq 'Valid' }
}

# Null where SMB cannot be asked; a list that has none of ours otherwise.
$smb = $null
try { $smb = @(Get-SmbClientNetworkInterface -ErrorAction Stop) } catch { $smb = $null }

$interfaces = foreach ($adapter in @(Get-NetAdapter -IncludeHidden | Where-Object { $_.ComponentID -eq 'root\softndk' })) {
    $rdma = Get-NetAdapterRdma -Name $adapter.Name
    $capable = $null
    if ($null -ne $smb) {
        $capable = @($smb | Where-Object { $_.InterfaceIndex -eq $adapter.ifIndex -and $_.RdmaCapable }).Count -gt 0
    }
    $keywords = @{}
    foreach ($property in @(Get-NetAdapterAdvancedProperty -Name $adapter.Name -AllProperties)) {
        $keywords[$property.RegistryKeyword] = [string] @($property.RegistryValue)[0]
    }
    [ordered] @{
        interface_index = $adapter.ifIndex
        max_queue_pairs = $rdma.MaxQueuePairCount
        max_completion_queues = $rdma.MaxCompletionQueueCount
        smb_rdma_capable = $capable
        keywords = $keywords
    }
}

[ordered] @{
    elevated = $principal.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)
    secure_boot = if ($null -eq $secureBoot) { $false } else { $secureBoot -eq 1 }
    signature_trusted = $trusted
    network_direct = if ($null -eq $global) { $null } else { [string] $global.NetworkDirect -eq 'Enabled' }
    verifier_flags = if ($null -eq $memory.VerifyDriverLevel) { 0 } else { $memory.VerifyDriverLevel }
    verified_drivers = [string] $memory.VerifyDrivers
    provider_service = Get-DriverState $provider
    consumer_service = Get-DriverState $consumer
    interfaces = @($interfaces)
} | ConvertTo-Json -Depth 4 -Compress
