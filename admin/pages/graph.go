package pages

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The sizes of a drawing of calls, in CSS pixels: it is scrolled, not scaled.
const (
	nodeWidth, nodeHeight = 160.0, 44.0
	nodeGapX, nodeGapY    = 56.0, 16.0
	wayHeight             = 10.0 // of an arrow that passes a layer
	graphEdgeRoom         = 12.0 // around it
	backRoom              = 44.0 // below, for calls that go back
	// maxNodes are drawn, and maxEdges are looked at; more only the table shows.
	maxNodes, maxEdges = 30, 300
	// maxLabel is how many characters of a name fit into its box.
	maxLabel = 20
)

// callEdge says that a service calls another.
type callEdge struct {
	From, To string
	Envs     []string // of the callers
	Bad      bool     // the calls fail now
}

// graph is a drawing of calls: callers left, whom they call right of them.
type graph struct {
	Width, Height float64
	Nodes         []graphNode
	Edges         []graphEdge
}

// graphNode is the box of one service, or a place that an arrow over several layers
// passes through.
type graphNode struct {
	Name, Label, Note string
	Bad               bool
	X, Y              float64
	layer             int
	way               bool
}

func (n graphNode) height() float64 {
	if n.way {
		return wayHeight
	}
	return nodeHeight
}

func (n graphNode) middle() float64 { return n.Y + n.height()/2 }

// graphEdge is an arrow.
type graphEdge struct {
	callEdge
	Path, Head string
}

// drawCalls lays out calls in layers. note is what stands below a name. It draws
// nothing where nobody calls, and is crowded when there are more than maxNodes.
func drawCalls(edges []callEdge, note func(name string) (text string, bad bool)) (drawn *graph, crowded bool) {
	nodes, at := nodesOf(edges)
	boxes := len(nodes)
	if boxes == 0 || boxes > maxNodes {
		return nil, boxes > maxNodes
	}
	back := layered(nodes, at, edges)
	chains := make([][]int, len(edges))
	for i, e := range edges {
		if !back[i] {
			nodes, chains[i] = chained(nodes, at[e.From], at[e.To])
		}
	}
	g := &graph{Height: placed(nodes, chains)}
	for i := range nodes[:boxes] {
		n := &nodes[i]
		n.Label = shortened(n.Name, maxLabel)
		n.Note, n.Bad = note(n.Name)
		n.Note = shortened(n.Note, maxLabel+4) // in smaller letters
		g.Width = max(g.Width, n.X+nodeWidth+graphEdgeRoom)
	}
	if len(back) > 0 {
		g.Height += backRoom
	}
	for i, e := range edges {
		arrow := graphEdge{callEdge: e}
		if back[i] {
			arrow.Path, arrow.Head = arc(nodes[at[e.From]], nodes[at[e.To]])
		} else {
			arrow.Path, arrow.Head = bow(nodes, chains[i])
		}
		g.Edges = append(g.Edges, arrow)
	}
	g.Nodes = nodes[:boxes]
	return g, false
}

// chained is the way from one node to another: through a place in each layer between.
func chained(nodes []graphNode, from, to int) (more []graphNode, chain []int) {
	chain = []int{from}
	for layer := nodes[from].layer + 1; layer < nodes[to].layer; layer++ {
		chain = append(chain, len(nodes))
		nodes = append(nodes, graphNode{layer: layer, way: true})
	}
	return nodes, append(chain, to)
}

// nodesOf are the services of the calls, by name.
func nodesOf(edges []callEdge) ([]graphNode, map[string]int) {
	at := map[string]int{}
	var names []string
	for _, e := range edges {
		for _, name := range []string{e.From, e.To} {
			if _, known := at[name]; !known {
				at[name] = 0
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	nodes := make([]graphNode, len(names))
	for i, name := range names {
		nodes[i].Name, at[name] = name, i
	}
	return nodes, at
}

// layered puts each service right of all that call it. Calls that close a circle go
// back, and count for no layer; back has them by their place among the edges.
func layered(nodes []graphNode, at map[string]int, edges []callEdge) (back map[int]bool) {
	back = map[int]bool{}
	order := ranked(len(nodes), at, edges)
	rank := make([]int, len(nodes))
	for i, n := range order {
		rank[n] = i
	}
	for _, n := range order {
		for i, e := range edges {
			from, to := at[e.From], at[e.To]
			switch {
			case from != n:
			case rank[from] >= rank[to]:
				back[i] = true
			default:
				nodes[to].layer = max(nodes[to].layer, nodes[n].layer+1)
			}
		}
	}
	return back
}

// ranked orders nodes so that few edges go back: whom nobody calls first, who calls
// nobody last, and where all are in circles the one that calls most and is called
// least (Eades, Lin and Smyth 1993).
func ranked(count int, at map[string]int, edges []callEdge) []int {
	var first, last []int
	placed := make([]bool, count)
	for len(first)+len(last) < count {
		best, most, sink := -1, 0, false
		for n := range count {
			if placed[n] {
				continue
			}
			in, out := degrees(n, at, edges, placed)
			switch {
			case in == 0 || out == 0:
				best, most, sink = n, math.MaxInt, in > 0
			case best < 0 || out-in > most:
				best, most = n, out-in
			}
			if most == math.MaxInt {
				break
			}
		}
		if placed[best] = true; sink {
			last = append(last, best)
		} else {
			first = append(first, best)
		}
	}
	slices.Reverse(last)
	return append(first, last...)
}

// degrees are the calls to and from a node among those that have no place yet.
func degrees(n int, at map[string]int, edges []callEdge, placed []bool) (in, out int) {
	for _, e := range edges {
		from, to := at[e.From], at[e.To]
		if from == to || placed[from] || placed[to] {
			continue
		}
		if to == n {
			in++
		}
		if from == n {
			out++
		}
	}
	return in, out
}

// placed gives each node its place: in its layer as high as those that call it stand
// on average, so that few arrows cross. It returns the height of all.
func placed(nodes []graphNode, chains [][]int) (height float64) {
	var layers [][]int
	for i, n := range nodes {
		for len(layers) <= n.layer {
			layers = append(layers, nil)
		}
		layers[n.layer] = append(layers[n.layer], i)
	}
	tall := make([]float64, len(layers))
	for layer, column := range layers {
		for _, n := range column {
			tall[layer] += nodes[n].height() + nodeGapY
		}
		height = max(height, tall[layer]-nodeGapY+2*graphEdgeRoom)
	}
	before := before(len(nodes), chains)
	for layer, column := range layers {
		wish := make(map[int]float64, len(column))
		for _, n := range column {
			for _, from := range before[n] {
				wish[n] += nodes[from].middle() / float64(len(before[n]))
			}
		}
		slices.SortStableFunc(column, func(a, b int) int { return cmp.Compare(wish[a], wish[b]) })
		y := (height - tall[layer] + nodeGapY) / 2
		for _, n := range column {
			nodes[n].X, nodes[n].Y = graphEdgeRoom+float64(layer)*(nodeWidth+nodeGapX), y
			y += nodes[n].height() + nodeGapY
		}
	}
	return height
}

// before are the nodes from which arrows come to each node.
func before(count int, chains [][]int) [][]int {
	all := make([][]int, count)
	for _, chain := range chains {
		for i := 1; i < len(chain); i++ {
			all[chain[i]] = append(all[chain[i]], chain[i-1])
		}
	}
	return all
}

// bow is an arrow to the right along its chain.
func bow(nodes []graphNode, chain []int) (path, head string) {
	const tip, half, bend = 8.0, 4.0, nodeGapX / 2
	from, to := nodes[chain[0]], nodes[chain[len(chain)-1]]
	x, y := from.X+nodeWidth, from.middle()
	path = fmt.Sprintf("M%.0f %.0f", x, y)
	for _, i := range chain[1:] {
		n, end := nodes[i], nodes[i].X
		if !n.way {
			end -= tip
		}
		path += fmt.Sprintf("C%.0f %.0f %.0f %.0f %.0f %.0f", x+bend, y, n.X-bend, n.middle(), end, n.middle())
		if x, y = n.X+nodeWidth, n.middle(); n.way {
			path += fmt.Sprintf("H%.0f", x)
		}
	}
	return path, fmt.Sprintf("M%.0f %.0fl-%.0f -%.0fv%.0fz", to.X, to.middle(), tip, half, 2*half)
}

// arc is an arrow that goes back, below the boxes.
func arc(from, to graphNode) (path, head string) {
	const tip, half, aside = 8.0, 4.0, 24.0
	x1, y1 := from.X+nodeWidth/2+aside, from.Y+nodeHeight
	x2, y2 := to.X+nodeWidth/2-aside, to.Y+nodeHeight
	return fmt.Sprintf("M%.0f %.0fC%.0f %.0f %.0f %.0f %.0f %.0f", x1, y1, x1, y1+backRoom, x2, y2+backRoom, x2, y2+tip),
		fmt.Sprintf("M%.0f %.0fl-%.0f %.0fh%.0fz", x2, y2, half, tip, 2*half)
}

// shortened leaves the middle of a long text out: names begin and end differently.
func shortened(text string, most int) string {
	letters := []rune(text)
	if len(letters) <= most {
		return text
	}
	tail := most / 3
	return strings.TrimSpace(string(letters[:most-tail-1])) + "…" + string(letters[len(letters)-tail:])
}
