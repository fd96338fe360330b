//go:build linux

package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// relayPort is the port on 127.0.0.1 at which redirected connections arrive. No process in a sandbox may listen below 1024.
	relayPort   = 1
	portOfNames = 53
	// mostPorts is the maximal number of listeners of a sandbox in which connections cannot be redirected.
	mostPorts = 48
	backlog   = 256
)

// Error is the error of a failed step.
type Error struct {
	Step string
	Err  error
}

func (e *Error) Error() string { return e.Step + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// errAnswer is the error for a response of the kernel that cannot be parsed.
var errAnswer = errors.New("netns: malformed answer of the kernel")

// Sockets are the descriptors of the sockets that receive a sandbox's connections and DNS queries.
type Sockets struct {
	TCP []int
	UDP int
}

// Files returns the descriptors. The last is the socket for DNS queries.
func (s *Sockets) Files() []int { return append(append([]int{}, s.TCP...), s.UDP) }

// Close closes all descriptors.
func (s *Sockets) Close() {
	for _, fd := range s.Files() {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// Open sets up the network namespace of the calling thread so that the returned sockets are its only way out. Without ports, connections
// to all ports are redirected to one listener; otherwise each port has a listener, and connections to other ports are refused. It may be
// repeated in a namespace if the earlier sockets are closed, else the error is EADDRINUSE. Errors are of type [*Error].
func Open(ports []int) (*Sockets, error) {
	s := &Sockets{UDP: -1}
	err := s.open(ports)
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Sockets) open(ports []int) error {
	if len(ports) > mostPorts {
		return &Error{"listen for connections",
			fmt.Errorf("%d ports are too many where the kernel has no nft_tproxy: %w", len(ports), unix.E2BIG)}
	}
	redirects, at := len(ports) == 0, [4]byte{}
	if redirects {
		ports, at = []int{relayPort}, [4]byte{127, 0, 0, 1}
	} else {
		ports = append([]int{portOfNames}, ports...)
	}
	if err := routeAll(); err != nil && !errors.Is(err, unix.EEXIST) {
		return &Error{"route all addresses to the relay", err}
	}
	for _, port := range ports { // the listeners receive all connections of the network
		fd, err := listen(unix.SOCK_STREAM, at, port)
		if err != nil {
			return &Error{"listen for connections", err}
		}
		s.TCP = append(s.TCP, fd)
	}
	var err error
	if s.UDP, err = listen(unix.SOCK_DGRAM, [4]byte{}, portOfNames); err != nil {
		return &Error{"listen for questions for names", err}
	}
	if !redirects {
		return nil
	}
	if err := redirect(); err != nil {
		return &Error{"redirect connections to the relay", err}
	}
	return nil
}

// In calls f on a thread in the network namespace that a file such as /proc/PID/ns/net refers to, and returns its error. That needs
// CAP_SYS_ADMIN over the namespace. Sockets that f opens stay in it.
func In(network *os.File, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- &Error{"enter the network", err}
			return
		}
		result <- f()
	}()
	return <-result
}

// listen opens a socket. Redirected connections keep their original destination as local address.
func listen(kind int, addr [4]byte, port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: addr})
	}
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// routeAll makes every IPv4 address local to this network namespace. IPv6 has no route at all.
func routeAll() error {
	const loopback = 1 // index of the first device in every network namespace
	m := message{kind: unix.RTM_NEWROUTE, flags: unix.NLM_F_CREATE}
	m.body = append(m.body, unix.AF_INET, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0)
	m.attr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, loopback))
	return talk(unix.NETLINK_ROUTE, m)
}

// Constants of nf_tables messages and attributes.
const (
	nfBatchBegin, nfBatchEnd = 0x10, 0x11
	nfTables                 = unix.NFNL_SUBSYS_NFTABLES << 8
	nfFamily                 = 2 // NFPROTO_IPV4
	register                 = 1
)

// redirect makes connections to all addresses but 127.0.0.0/8 arrive at the relay's port, whatever their destination port is. It does not
// translate addresses, so the kernel tracks no connections.
func redirect() error {
	const table, chain = "sandjet\x00", "in\x00"
	newTable := nfMessage(unix.NFT_MSG_NEWTABLE)
	newTable.attr(unix.NFTA_TABLE_NAME, []byte(table))
	oldTable := nfMessage(unix.NFT_MSG_DELTABLE) // an earlier table; after newTable it exists in any case
	oldTable.attr(unix.NFTA_TABLE_NAME, []byte(table))

	newChain := nfMessage(unix.NFT_MSG_NEWCHAIN)
	newChain.attr(unix.NFTA_CHAIN_TABLE, []byte(table))
	newChain.attr(unix.NFTA_CHAIN_NAME, []byte(chain))
	newChain.attr(unix.NFTA_CHAIN_TYPE, []byte("filter\x00"))
	const before = ^uint32(150) + 1 // its priority among the hooks: -150
	newChain.nest(unix.NFTA_CHAIN_HOOK, number(unix.NFTA_HOOK_HOOKNUM, unix.NF_INET_PRE_ROUTING), number(unix.NFTA_HOOK_PRIORITY, before))

	rule := nfMessage(unix.NFT_MSG_NEWRULE)
	rule.attr(unix.NFTA_RULE_TABLE, []byte(table))
	rule.attr(unix.NFTA_RULE_CHAIN, []byte(chain))
	rule.nest(unix.NFTA_RULE_EXPRESSIONS,
		expression("meta", number(unix.NFTA_META_KEY, unix.NFT_META_L4PROTO), number(unix.NFTA_META_DREG, register)),
		expression("cmp", number(unix.NFTA_CMP_SREG, register), number(unix.NFTA_CMP_OP, unix.NFT_CMP_EQ),
			value(unix.NFTA_CMP_DATA, unix.IPPROTO_TCP)),
		// The first byte of the destination address.
		expression("payload", number(unix.NFTA_PAYLOAD_DREG, register), number(unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_NETWORK_HEADER),
			number(unix.NFTA_PAYLOAD_OFFSET, 16), number(unix.NFTA_PAYLOAD_LEN, 1)),
		expression("cmp", number(unix.NFTA_CMP_SREG, register), number(unix.NFTA_CMP_OP, unix.NFT_CMP_NEQ), value(unix.NFTA_CMP_DATA, 127)),
		expression("immediate", number(unix.NFTA_IMMEDIATE_DREG, register), value(unix.NFTA_IMMEDIATE_DATA, relayPort>>8, relayPort&0xff)),
		expression("tproxy", number(nftaTproxyFamily, nfFamily), number(nftaTproxyRegPort, register)),
	)
	begin, end := message{kind: nfBatchBegin, silent: true}, message{kind: nfBatchEnd, silent: true}
	begin.body = []byte{0, 0, 0, unix.NFNL_SUBSYS_NFTABLES}
	end.body = begin.body
	return talk(unix.NETLINK_NETFILTER, begin, newTable, oldTable, newTable, newChain, rule, end)
}

const nftaTproxyFamily, nftaTproxyRegPort = 1, 3

func nfMessage(kind uint16) message {
	return message{kind: nfTables | kind, flags: unix.NLM_F_CREATE, body: []byte{nfFamily, 0, 0, 0}}
}

// message is a netlink message.
type message struct {
	kind   uint16
	flags  uint16
	silent bool // the kernel does not respond to it
	body   []byte
}

func (m *message) attr(kind uint16, data []byte) { m.body = attribute(m.body, kind, data) }
func (m *message) nest(kind uint16, inner ...[]byte) {
	m.body = attribute(m.body, kind|unix.NLA_F_NESTED, join(inner))
}

func join(parts [][]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// attribute appends a netlink attribute (a length, a kind and data), padded to a multiple of four bytes.
func attribute(to []byte, kind uint16, data []byte) []byte {
	to = binary.NativeEndian.AppendUint16(to, uint16(4+len(data))) // all are short
	to = binary.NativeEndian.AppendUint16(to, kind)
	to = append(to, data...)
	return append(to, make([]byte, -len(data)&3)...)
}

// number returns an nf_tables attribute that contains a number.
func number(kind uint16, n uint32) []byte {
	return attribute(nil, kind, binary.BigEndian.AppendUint32(nil, n))
}

// value returns an nf_tables attribute with bytes to compare or load.
func value(kind uint16, data ...byte) []byte {
	return attribute(nil, kind|unix.NLA_F_NESTED, attribute(nil, unix.NFTA_DATA_VALUE, data))
}

// expression returns one expression of an nf_tables rule.
func expression(name string, attributes ...[]byte) []byte {
	inner := attribute(nil, unix.NFTA_EXPR_NAME, append([]byte(name), 0))
	inner = attribute(inner, unix.NFTA_EXPR_DATA|unix.NLA_F_NESTED, join(attributes))
	return attribute(nil, unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, inner)
}

// talk sends netlink messages in one write and waits for the answers. It returns the first error among them.
func talk(protocol int, messages ...message) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // used for one talk
	var data []byte
	answers := 0
	for i, m := range messages {
		flags := m.flags | unix.NLM_F_REQUEST
		if !m.silent {
			flags |= unix.NLM_F_ACK
			answers++
		}
		data = binary.NativeEndian.AppendUint32(data, uint32(unix.NLMSG_HDRLEN+len(m.body))) // all are short
		data = binary.NativeEndian.AppendUint16(data, m.kind)
		data = binary.NativeEndian.AppendUint16(data, flags)
		data = binary.NativeEndian.AppendUint32(data, uint32(i+1)) // few
		data = binary.NativeEndian.AppendUint32(data, 0)
		data = append(data, m.body...)
	}
	patience := unix.Timeval{Sec: 5}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		return err
	}
	if err := unix.Sendto(fd, data, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 8<<10)
	for answers > 0 {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return err
		}
		for rest := buf[:n]; len(rest) >= unix.NLMSG_HDRLEN; {
			size := int(binary.NativeEndian.Uint32(rest))
			const errorAt = unix.NLMSG_HDRLEN + int(unsafe.Sizeof(int32(0)))
			if size < errorAt || size > len(rest) || binary.NativeEndian.Uint16(rest[4:]) != unix.NLMSG_ERROR {
				return errAnswer
			}
			if errno := -int32(binary.NativeEndian.Uint32(rest[unix.NLMSG_HDRLEN:])); errno != 0 { // an error number
				return unix.Errno(errno)
			}
			answers--
			rest = rest[min(len(rest), (size+3)&^3):]
		}
	}
	return nil
}
