// Package proxy puts faults between a client process and a real kube-apiserver.
//
// Every client process gets a listener of its own on the loopback interface, so the proxy knows whose request it is. The
// client side is plain HTTP/1.1 without credentials; the apiserver is reached as the user that the process acts as. Each
// request is shown to an Injector before it is forwarded, and the Injector answers with a Fault: what shall go wrong. Beside
// that, Hold makes one kind's watch lag behind the others, and Partition cuts a client off.
//
// What a request is, is said by its Point: a step of the protocol such as "Effect.reserve" or "Action.admit".
//
// Rules that hold for every fault:
//
//   - A write that has been forwarded is carried through, whatever becomes of the client: its connection may be reset, its
//     process killed. So it is always known how the apiserver answered, and Fault.After hears it. Reads and watches end with
//     the client.
//   - A client never gets an answer that the apiserver did not give, but for Refuse. Where the apiserver cannot be reached
//     the client's connection is reset: a gateway's error would be a status, and a status is an answer.
//   - client-go and net/http repeat a GET whose connection is reset, some times and without telling. To keep a client from
//     reading, use Partition.
package proxy
