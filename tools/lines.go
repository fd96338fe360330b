package tools

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// window is the number of bytes of a file that are in memory at a time.
const window = 64 << 10

// stride returns how many bytes are searched between two checks of the context, for a program of that many instructions. The search takes
// at most their product of steps, which is some tens of milliseconds.
func stride(program int) int {
	const effort = 2 << 20
	return min(effort/max(program, 1), window)
}

// matches reports whether one line matches. Bytes that are not UTF-8 match nothing.
func (p pattern) matches(ctx context.Context, line []byte) (bool, error) {
	if holds := bytes.Contains(line, p.literal); p.exact || !holds {
		return holds, nil
	}
	if len(line) <= p.stride && utf8.Valid(line) {
		return p.re.Match(line), nil
	}
	r := &runes{ctx: ctx, in: bytes.NewReader(line), stride: p.stride}
	matched := p.re.MatchReader(r)
	return matched, r.err
}

// runes reads characters for a regular expression. Each byte that is not UTF-8 becomes a character that nothing matches. When the context
// ends it reports the end of the input.
type runes struct {
	ctx    context.Context //nolint:containedctx // the interface that it keeps has none
	in     io.RuneReader
	stride int // characters between two checks of the context
	read   int
	err    error // why it ended early
}

// ReadRune returns the next character.
func (r *runes) ReadRune() (rune, int, error) {
	if r.err != nil {
		return 0, 0, io.EOF
	}
	if r.read++; r.read%r.stride == 0 {
		if r.err = checkpoint(r.ctx); r.err != nil {
			return 0, 0, io.EOF
		}
	}
	c, n, err := r.in.ReadRune()
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	if c == utf8.RuneError && n == 1 {
		c = noCharacter
	}
	return c, n, err
}

// lines calls found for each matching line of a file, with its number from 1 and its first [cutLine] bytes at most, without the line end.
// It has one window of the file in memory at a time, so that neither many nor long lines cost memory, and checks the context regularly.
func (p pattern) lines(ctx context.Context, f io.ReaderAt, size int64, found func(number int, line []byte) bool) error {
	buf := make([]byte, min(int64(p.window), size))
	number := 1
	for at := int64(0); at < size; {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) || n == 0 { // n is 0 if the file has become shorter
			return ignoreEOF(err)
		}
		piece := buf[:n]
		end := bytes.LastIndexByte(piece, '\n') + 1
		if at+int64(n) >= size || err != nil { // the last line may lack its end
			end = n
		}
		if end == 0 { // a line that is longer than the window
			length, more, err := p.longLine(ctx, f, at, size, number, found)
			if err != nil || !more {
				return err
			}
			at, number = at+length, number+1
			continue
		}
		lines, more, err := p.whole(ctx, piece[:end], number, found)
		if err != nil || !more {
			return err
		}
		at, number = at+int64(end), number+lines
	}
	return nil
}

func ignoreEOF(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("search: %w", err)
}

// whole searches complete lines and returns their number.
func (p pattern) whole(ctx context.Context, data []byte, number int,
	found func(number int, line []byte) bool) (lines int, more bool, err error) {
	if err := checkpoint(ctx); err != nil {
		return 0, false, err
	}
	if len(p.literal) > 0 && !bytes.Contains(data, p.literal) {
		return lineEnds(data), true, nil
	}
	stride := p.stride
	if p.exact {
		stride = p.window
	}
	for at := 0; at < len(data); {
		end := len(data)
		if end-at > stride {
			end = at + bytes.LastIndexByte(data[at:at+stride], '\n') + 1
		}
		if end > at {
			n, more := p.some(data[at:end], number+lines, found)
			if lines, at = lines+n, end; !more {
				return lines, false, nil
			}
		} else { // a line that is longer than the stride
			if n := bytes.IndexByte(data[at:], '\n'); n >= 0 {
				end = at + n
			} else {
				end = len(data)
			}
			matched, err := p.matches(ctx, data[at:end])
			if err != nil || matched && !found(number+lines, cut(data[at:end])) {
				return lines, false, err
			}
			lines, at = lines+1, end+1
		}
		if err := checkpoint(ctx); err != nil {
			return lines, false, err
		}
	}
	return lines, true, nil
}

// cut returns the part of a line that an answer may show.
func cut(line []byte) []byte { return line[:min(len(line), cutLine)] }

// some searches lines that are short enough to be searched without checking the context.
func (p pattern) some(data []byte, first int, found func(number int, line []byte) bool) (lines int, more bool) {
	valid := utf8.Valid(data) // if not, it searches line by line: invalid bytes must not match, and must be shown
	for at := 0; at < len(data); {
		from := at
		if valid {
			m := p.next(data[at:])
			if m >= 0 {
				from = at + bytes.LastIndexByte(data[at:at+m], '\n') + 1
			}
			if m < 0 || from >= len(data) { // or an empty match after the last line end
				return lines + count(data[at:]), true
			}
			lines += lineEnds(data[at:from])
		}
		end := len(data)
		if n := bytes.IndexByte(data[from:], '\n'); n >= 0 {
			end = from + n
		}
		line := data[from:end]
		if valid || p.matchesShort(line) {
			if !found(first+lines, cut(line)) {
				return lines, false
			}
		}
		lines, at = lines+1, end+1
	}
	return lines, true
}

// lineEnds returns the number of line ends.
func lineEnds(data []byte) int { return bytes.Count(data, []byte{'\n'}) }

// count returns the number of lines; the last one may lack its end.
func count(data []byte) int {
	n := lineEnds(data)
	if len(data) > 0 && data[len(data)-1] != '\n' {
		n++
	}
	return n
}

// matchesShort is matches for a line that is at most a stride long.
func (p pattern) matchesShort(line []byte) bool {
	matched, _ := p.matches(context.Background(), line) // such a line is searched without checking the context
	return matched
}

// next returns where the first match begins, or -1. data begins at the beginning of a line.
func (p pattern) next(data []byte) int {
	if p.exact {
		return bytes.Index(data, p.literal)
	}
	if len(p.literal) == 0 {
		if m := p.re.FindIndex(data); m != nil {
			return m[0]
		}
		return -1
	}
	// Only lines that contain the literal can match.
	for at := 0; ; {
		n := bytes.Index(data[at:], p.literal)
		if n < 0 {
			return -1
		}
		from := at + bytes.LastIndexByte(data[at:at+n], '\n') + 1
		end := len(data)
		if e := bytes.IndexByte(data[at+n:], '\n'); e >= 0 {
			end = at + n + e
		}
		if p.re.Match(data[from:end]) {
			return from
		}
		if end == len(data) {
			return -1
		}
		at = end + 1
	}
}

// longLine searches a line that begins at offset at and is longer than a window, and returns its length without its end, plus one. It
// reads the line twice: for the literal and the end, then for the whole expression.
func (p pattern) longLine(
	ctx context.Context, f io.ReaderAt, at, size int64, number int, found func(number int, line []byte) bool,
) (length int64, more bool, err error) {
	length, holds, err := p.measure(ctx, f, at, size)
	if err != nil {
		return 0, false, err
	}
	matched := holds
	if holds && !p.exact {
		in := bufio.NewReaderSize(io.NewSectionReader(f, at, length), window)
		r := &runes{ctx: ctx, in: in, stride: p.stride}
		if matched = p.re.MatchReader(r); r.err != nil {
			return 0, false, fmt.Errorf("search: %w", r.err)
		}
	}
	if !matched {
		return length + 1, true, nil
	}
	begin := make([]byte, min(length, cutLine))
	n, err := f.ReadAt(begin, at)
	return length + 1, found(number, begin[:n]), ignoreEOF(err)
}

// measure returns the length of a line without its end, and whether it contains the literal.
func (p pattern) measure(ctx context.Context, f io.ReaderAt, at, size int64) (length int64, holds bool, err error) {
	holds = len(p.literal) == 0
	buf := make([]byte, p.window+len(p.literal)) // what stands over the edge of two windows is seen in the second
	kept := 0
	for at+length < size {
		if err := checkpoint(ctx); err != nil {
			return 0, false, err
		}
		n, err := f.ReadAt(buf[kept:kept+int(min(int64(p.window), size-at-length))], at+length)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, false, fmt.Errorf("search: %w", err)
		}
		piece := buf[:kept+n]
		end := bytes.IndexByte(piece[kept:], '\n')
		if end >= 0 {
			piece = piece[:kept+end]
		}
		holds = holds || bytes.Contains(piece, p.literal)
		if end >= 0 {
			return length + int64(end), holds, nil
		}
		if length += int64(n); err != nil || n == 0 {
			return length, holds, nil //nolint:nilerr // the file ends here
		}
		if len(p.literal) > 1 {
			kept = copy(buf, piece[max(0, len(piece)-len(p.literal)+1):])
		}
	}
	return length, holds, nil
}
