package modaltest

import (
	"bytes"
	"context"
	"path"
	"strings"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// The moments at which a connection is dropped.
const (
	Before = servicetest.Before // the request is read, and nothing is done
	After  = servicetest.After  // it was carried out, and the answer is lost; of a stream one message arrives
	Half   = servicetest.Half   // of a stream: half of a message arrives
)

// Fault is a failure that a test injects.
type Fault struct {
	Method string // such as "SandboxCreateV2"
	Has    string // only where the request has this text; empty: any
	Times  int    // how often; 0: once
	Pass   int    // how many requests pass before it
	Code   codes.Code
	After  float32 // seconds after which the service wants to be asked again; 0: it does not say
	Drop   servicetest.When
	Slow   time.Duration
}

// faults are the pending faults of a service.
type faults struct {
	mu  sync.Mutex
	all []*Fault
}

func (s *faults) add(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Times = max(f.Times, 1)
	s.all = append(s.all, &f)
}

// meets returns the first fault that matches a request; nil if there is none.
func (s *faults) meets(method string, req any) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.all {
		if f.Times == 0 || f.Method != method || f.Has != "" && !has(req, f.Has) {
			continue
		}
		if f.Pass > 0 {
			f.Pass--
			return nil
		}
		f.Times--
		one := *f
		return &one
	}
	return nil
}

func has(req any, text string) bool {
	m, ok := req.(proto.Message)
	if !ok {
		return false
	}
	b, err := proto.Marshal(m)
	return err == nil && bytes.Contains(b, []byte(text))
}

// err returns the error with which the service answers.
func (f *Fault) err() error {
	st := status.New(f.Code, "the fault of a test")
	if f.After > 0 {
		if with, err := st.WithDetails(pb.RPCRetryPolicy_builder{RetryAfterSecs: f.After}.Build()); err == nil {
			st = with
		}
	}
	return st.Err()
}

func (f *Fault) pause(ctx context.Context) {
	if f.Slow <= 0 {
		return
	}
	select {
	case <-time.After(f.Slow):
	case <-ctx.Done():
	}
}

// drop breaks the connection of a request.
func (s *Service) drop(ctx context.Context) error {
	if p, ok := peer.FromContext(ctx); ok {
		s.mu.Lock()
		c := s.conns[p.Addr.String()]
		s.mu.Unlock()
		if c != nil {
			_ = c.Close()
		}
	}
	return status.Error(codes.Unavailable, "dropped")
}

// unary authenticates a request, and handles it or applies a fault.
func (s *Service) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	if err := s.admit(ctx, info.FullMethod, req); err != nil {
		return nil, err
	}
	f := s.faults.meets(path.Base(info.FullMethod), req)
	if f == nil {
		return h(ctx, req)
	}
	f.pause(ctx)
	switch {
	case f.Code != codes.OK:
		return nil, f.err()
	case f.Drop == Before:
		return nil, s.drop(ctx)
	case f.Drop != "":
		_, _ = h(ctx, req) // whatever it says
		return nil, s.drop(ctx)
	}
	return h(ctx, req)
}

// stream is unary for streams, whose requests are read by their handlers.
func (s *Service) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	return h(srv, &faultyStream{ServerStream: ss, s: s, method: info.FullMethod})
}

type faultyStream struct {
	grpc.ServerStream
	s      *Service
	method string
	f      *Fault
	asked  bool
}

func (f *faultyStream) RecvMsg(m any) error {
	if err := f.ServerStream.RecvMsg(m); err != nil || f.asked {
		return err
	}
	f.asked = true
	if err := f.s.admit(f.Context(), f.method, m); err != nil {
		return err
	}
	f.f = f.s.faults.meets(path.Base(f.method), m)
	if f.f == nil {
		return nil
	}
	f.f.pause(f.Context())
	switch {
	case f.f.Code != codes.OK:
		return f.f.err()
	case f.f.Drop == Before:
		return f.s.drop(f.Context())
	}
	return nil
}

func (f *faultyStream) SendMsg(m any) error {
	if f.f == nil || f.f.Drop == "" {
		return f.ServerStream.SendMsg(m)
	}
	if out, ok := m.(*pb.TaskExecStdioReadResponse); ok && f.f.Drop == Half {
		out.SetData(out.GetData()[:len(out.GetData())/2])
	}
	if err := f.ServerStream.SendMsg(m); err != nil {
		return err
	}
	time.Sleep(50 * time.Millisecond) // it is on its way
	return f.s.drop(f.Context())
}

// admit returns an error unless a request has the credentials, or a token of a router.
func (s *Service) admit(ctx context.Context, method string, req any) error {
	md, _ := metadata.FromIncomingContext(ctx)
	one := func(name string) string { // the vendor's client for Go says some twice
		if all := md.Get(name); len(all) > 0 {
			return all[0]
		}
		return ""
	}
	if strings.Contains(method, "TaskCommandRouter") {
		task := ""
		if t, ok := req.(interface{ GetTaskId() string }); ok {
			task = t.GetTaskId()
		}
		if !s.takes(strings.TrimPrefix(one("authorization"), "Bearer "), task) {
			return status.Errorf(codes.Unauthenticated, "not authenticated: %s", one("authorization"))
		}
		return nil
	}
	if one("x-modal-token-id") != TokenID || one("x-modal-token-secret") != TokenSecret {
		return status.Errorf(codes.Unauthenticated, "Token ID %s or secret %s is not valid", one("x-modal-token-id"), one("x-modal-token-secret"))
	}
	switch path.Base(method) {
	case "AuthTokenGet", "ImageJoinStreaming", "ClientHello":
		return nil
	}
	if !s.takes(one("x-modal-auth-token"), "client") {
		return status.Errorf(codes.Unauthenticated, "auth token %s is not valid", one("x-modal-auth-token"))
	}
	return nil
}
