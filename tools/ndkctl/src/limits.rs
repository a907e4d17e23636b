//! Which number of a refused request is beyond which limit of its adapters: the driver's status says only that one is.

use softndk_ioctl::{
    AdapterLimits, Operation, PairCreateRequest, PairLimits, REGION_LENGTH_MAX, TransferFlags, TransferRequest,
};

/// A number, what it is, the most that is taken, and whose limit that is.
struct Number {
    wanted: u64,
    what: &'static str,
    most: u64,
    limit: &'static str,
}

/// The first number of a pair's request that an adapter does not take.
pub fn of_pair(request: &PairCreateRequest, client: &AdapterLimits, server: &AdapterLimits) -> Option<String> {
    let elements =
        client.max_initiator_request_sge.min(client.max_read_request_sge).min(server.max_receive_request_sge);
    let number = |wanted: u32, what, most: u32, limit| Number { wanted: wanted.into(), what, most: most.into(), limit };
    first_beyond([
        number(
            request.initiator_queue_depth,
            "requests outstanding",
            client.max_initiator_queue_depth,
            "the client's MaxInitiatorQueueDepth",
        ),
        number(
            request.receive_queue_depth,
            "receives outstanding",
            server.max_receive_queue_depth,
            "the server's MaxReceiveQueueDepth",
        ),
        number(
            request.max_request_sge,
            "scatter/gather elements of a request",
            elements,
            "the least of the client's MaxInitiatorRequestSge and MaxReadRequestSge and the server's MaxReceiveRequestSge",
        ),
        number(
            request.read_limit,
            "Reads outstanding",
            client.max_outbound_read_limit.min(server.max_inbound_read_limit),
            "the lesser of the client's MaxOutboundReadLimit and the server's MaxInboundReadLimit",
        ),
    ])
}

/// The first number of a transfer's request that its pair does not take.
pub fn of_transfer(request: &TransferRequest, pair: &PairLimits) -> Option<String> {
    let number = |wanted: u32, what, most: u32, limit| Number { wanted: wanted.into(), what, most: most.into(), limit };
    let if_so = |so: bool, wanted: u32| if so { wanted } else { 0 };
    let inline = request.flags.contains(TransferFlags::INLINE);
    first_beyond([
        number(request.sge_count, "scatter/gather elements of a request", pair.max_request_sge, "the pair's limit"),
        number(request.depth, "requests outstanding", pair.initiator_queue_depth, "the pair's initiator queue depth"),
        number(
            if_so(request.operation == Operation::SEND, request.depth),
            "sends outstanding",
            pair.receive_queue_depth,
            "the pair's receive queue depth",
        ),
        number(request.request_length, "bytes of a request", pair.max_transfer_length, "MaxTransferLength"),
        number(
            if_so(inline, request.request_length),
            "bytes of inline data",
            pair.max_inline_data_size,
            "the client's MaxInlineDataSize",
        ),
    ])
}

/// A region that no request may have.
pub fn of_region(length: u64) -> Option<String> {
    first_beyond([Number {
        wanted: length,
        what: "bytes of a region",
        most: REGION_LENGTH_MAX,
        limit: "the longest region of a request to the driver",
    }])
}

fn first_beyond<const COUNT: usize>(numbers: [Number; COUNT]) -> Option<String> {
    let beyond = numbers.into_iter().find(|number| number.wanted > number.most);
    beyond.map(|Number { wanted, what, most, limit }| format!("{wanted} {what} are more than {most}, {limit}"))
}

#[cfg(test)]
mod tests {
    use super::{of_pair, of_region, of_transfer};
    use softndk_ioctl::{
        AdapterLimits, Operation, PairCreateRequest, PairLimits, REGION_LENGTH_MAX, TransferFlags, TransferRequest,
    };
    use zerocopy::FromZeros;

    fn adapter() -> AdapterLimits {
        let mut limits = AdapterLimits::new_zeroed();
        limits.max_initiator_queue_depth = 101;
        limits.max_receive_queue_depth = 103;
        limits.max_initiator_request_sge = 9;
        limits.max_read_request_sge = 7;
        limits.max_receive_request_sge = 8;
        limits.max_outbound_read_limit = 16;
        limits.max_inbound_read_limit = 12;
        limits.max_transfer_length = 5_000;
        limits.max_inline_data_size = 200;
        limits
    }

    fn pair() -> PairLimits {
        let request =
            PairCreateRequest { initiator_queue_depth: 50, receive_queue_depth: 40, ..PairCreateRequest::new_zeroed() };
        request.limits(&adapter(), &adapter()).unwrap()
    }

    /// At each limit the driver takes the request and nothing is said; beyond it the driver refuses and the number is named.
    #[test]
    fn number_of_a_pair_is_named_exactly_where_the_driver_refuses_it() {
        type Field = fn(&mut PairCreateRequest) -> &mut u32;
        let fields: [(Field, u32, &str); 4] = [
            (|request| &mut request.initiator_queue_depth, 101, "MaxInitiatorQueueDepth"),
            (|request| &mut request.receive_queue_depth, 103, "MaxReceiveQueueDepth"),
            (|request| &mut request.max_request_sge, 7, "scatter/gather elements"),
            (|request| &mut request.read_limit, 12, "Reads outstanding"),
        ];
        for (field, limit, named) in fields {
            let mut request = PairCreateRequest::new_zeroed();
            *field(&mut request) = limit;
            assert_eq!(of_pair(&request, &adapter(), &adapter()), None);
            assert!(request.limits(&adapter(), &adapter()).is_ok());
            *field(&mut request) = limit + 1;
            assert!(request.limits(&adapter(), &adapter()).is_err());
            let text = of_pair(&request, &adapter(), &adapter()).unwrap();
            assert!(text.starts_with(&(limit + 1).to_string()) && text.contains(&format!(" {limit}, ")), "{text}");
            assert!(text.contains(named), "{text}");
        }
    }

    #[test]
    fn number_of_a_transfer_is_named_exactly_where_the_driver_refuses_it() {
        type Set = fn(&mut TransferRequest, u32);
        let fields: [(Set, u32, &str); 5] = [
            (|request, number| request.sge_count = number, 7, "scatter/gather elements"),
            (|request, number| request.depth = number, 50, "initiator queue depth"),
            (
                |request, number| (request.operation, request.depth) = (Operation::SEND, number),
                40,
                "receive queue depth",
            ),
            (|request, number| request.request_length = number, 5_000, "MaxTransferLength"),
            (
                |request, number| (request.flags, request.request_length) = (TransferFlags::INLINE, number),
                200,
                "MaxInlineDataSize",
            ),
        ];
        for (set, limit, named) in fields {
            let mut request = TransferRequest { operation: Operation::WRITE, ..TransferRequest::new_zeroed() };
            set(&mut request, limit);
            assert!(request.check_against(&pair()).is_ok() && of_transfer(&request, &pair()).is_none(), "{named}");
            set(&mut request, limit + 1);
            assert!(request.check_against(&pair()).is_err(), "{named}");
            let text = of_transfer(&request, &pair()).unwrap();
            assert!(text.starts_with(&(limit + 1).to_string()) && text.contains(named), "{text}");
        }
    }

    #[test]
    fn region_that_is_too_long_is_named() {
        assert_eq!(of_region(REGION_LENGTH_MAX), None);
        assert!(of_region(REGION_LENGTH_MAX + 1).unwrap().contains("bytes of a region"));
    }
}
