package discovery

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/clients/nacos_client"
	"github.com/nacos-group/nacos-sdk-go/clients/naming_client"
	"github.com/nacos-group/nacos-sdk-go/common/constant"
	"github.com/nacos-group/nacos-sdk-go/common/http_agent"
	"github.com/nacos-group/nacos-sdk-go/vo"
)

// sdkTarget in the environment makes the test binary a service that uses the
// official SDK, because what the SDK starts never ends.
const sdkTarget = "DISPATCH_TEST_NACOS"

// The double is as good as its readers believe: the official SDK registers, beats,
// lists and leaves at it, and our adapter and the SDK find each other's instances.
func TestNacosDoublePassesTheOfficialSDK(t *testing.T) {
	t.Parallel()
	d := newNacosDouble()
	d.password = "sesame"
	address := d.serving(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"u": "nacos", "p": d.password} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source := openFor(t, "nacos://"+address+"?username-file="+dir+"/u&password-file="+dir+"/p")
	ours := instance("sdk-orders", "10.0.0.1:80")
	ours.Weight = new(50)
	lease, err := source.Register(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	w, _ := watching(t, source, "sdk-orders")
	await(t, w, soon, lists("10.0.0.1:80"))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sdk := exec.CommandContext(ctx, os.Args[0])
	sdk.Env, sdk.Stderr = append(os.Environ(), sdkTarget+"="+address, sdkTarget+"_DIR="+dir), os.Stderr
	leave, err := sdk.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := sdk.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sdk.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(said)
	var found string
	for found == "" && lines.Scan() {
		found, _ = strings.CutPrefix(lines.Text(), "found ")
	}
	if found != "10.0.0.1:80 0.5 prod of sdk-orders" {
		t.Errorf("the SDK found %q", found)
	}
	s := await(t, w, soon, lists("10.0.0.1:80", "10.0.0.2:81"))
	theirs := s.Instances[slices.IndexFunc(s.Instances, func(in Instance) bool { return in.Address.Port == 81 })]
	if theirs.Coordinates != home() || theirs.Share() != 200 || theirs.ID != "sdk-orders-10.0.0.2-81" || len(theirs.Labels) != 0 {
		t.Errorf("the SDK's instance is %+v", theirs)
	}
	if d.calls("PUT /nacos/v1/ns/instance/beat DEFAULT_GROUP@@sdk-orders") == 0 || d.calls("/v1/auth/users/login") == 0 {
		t.Errorf("no beat and login of the SDK among %v", d.asked)
	}
	_ = leave.Close()
	_, _ = io.Copy(io.Discard, said) // to its end
	if err := sdk.Wait(); err != nil {
		t.Errorf("the SDK's process: %v", err)
	}
	await(t, w, soon, lists("10.0.0.1:80"))
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// runSDK registers an instance with the official SDK, says what it finds, and leaves
// when its input ends. It returns the exit code.
func runSDK(address, dir string) int {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return failSDK(err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return failSDK(err)
	}
	var base nacos_client.NacosClient
	for _, err := range []error{
		base.SetClientConfig(constant.ClientConfig{Username: "nacos", Password: "sesame", NotLoadCacheAtStart: true, LogLevel: "error", CacheDir: dir, LogDir: dir}),
		base.SetServerConfig([]constant.ServerConfig{{IpAddr: host, Port: number}}),
		base.SetHttpAgent(&http_agent.HttpAgent{}),
	} {
		if err != nil {
			return failSDK(err)
		}
	}
	client, err := naming_client.NewNamingClient(&base)
	if err != nil {
		return failSDK(err)
	}
	found, err := client.SelectInstances(vo.SelectInstancesParam{ServiceName: "sdk-orders", HealthyOnly: true})
	if err != nil || len(found) != 1 {
		return failSDK(fmt.Errorf("found %+v, %w", found, err))
	}
	services, err := client.GetAllServicesInfo(vo.GetAllServiceInfoParam{PageNo: 1, PageSize: 10})
	if err != nil {
		return failSDK(err)
	}
	h := home()
	if ok, err := client.RegisterInstance(vo.RegisterInstanceParam{ServiceName: "sdk-orders", Ip: "10.0.0.2", Port: 81, Weight: 2, Enable: true, Healthy: true, Ephemeral: true,
		Metadata: map[string]string{"cluster": h.Cluster, "region": h.Region, "env": h.Env, "version": h.Version}}); !ok || err != nil {
		return failSDK(fmt.Errorf("registered %t, %w", ok, err))
	}
	fmt.Printf("found %s:%d %g %s of %s\n", found[0].Ip, found[0].Port, found[0].Weight, found[0].Metadata["env"], strings.Join(services.Doms, " "))
	_, _ = io.Copy(io.Discard, os.Stdin) // to its end
	if ok, err := client.DeregisterInstance(vo.DeregisterInstanceParam{ServiceName: "sdk-orders", Ip: "10.0.0.2", Port: 81, Ephemeral: true}); !ok || err != nil {
		return failSDK(fmt.Errorf("left %t, %w", ok, err))
	}
	return 0
}

func failSDK(err error) int {
	fmt.Fprintln(os.Stderr, "nacos SDK:", err)
	return 1
}
