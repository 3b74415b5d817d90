package admin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
)

// inChinese is a page as somebody with the role reads it who chose Chinese.
func (c *control) inChinese(role, method, path string, form url.Values) *reply {
	c.t.Helper()
	return c.browse(method, path, form, "Cookie", c.signedIn(role)+"; dispatch_lang=zh")
}

func TestARefusedEmergencyIsSaidInChinese(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.strict.Store(true)
	c.probed(allUp("cn-1")...)
	swap, back := swapForm("sh-main", "sh-spare"), swapForm("sh-spare", "sh-main")
	c.inChinese(actions.OnCall, http.MethodGet, "/emergency?"+swap.Encode(), nil).
		contains(200, "每个应用都仍有可接入新会话的区域", "目标近期没有变更过", "wapabst2.a.com.cn 正常：1 个探测点中有 1 个确认", "on-call 在 10m0s 内已执行 0 次应急操作，上限 3 次")
	c.inChinese(actions.OnCall, http.MethodPost, "/emergency", typed(swap, "演练", "hf", "k-1")).
		contains(422, "confirm_mismatch", "&#34;hf&#34; 与确认内容不符；未做任何变更", "请核对将要变更的内容，然后输入：sh", "!nothing was changed")
	c.inChinese(actions.OnCall, http.MethodPost, "/emergency", typed(swap, "演练", "sh", "k-2")).location()

	// The region rests: once as the rule stands, once as it refuses.
	c.inChinese(actions.OnCall, http.MethodGet, "/emergency?"+back.Encode(), nil).contains(200, "mobile/sh 在 ", "前刚变更过，10m0s 内共 1 次", "等到 ", "!was changed")
	c.inChinese(actions.OnCall, http.MethodPost, "/emergency", typed(back, "切回", "sh", "k-3")).
		contains(409, "safety_rule", "规则 flap_wait：mobile/sh 在 ", "前刚变更过，10m0s 内共 1 次", "Z（UTC）之后；也可指名越过 override: [&#34;flap_wait&#34;]，需要角色 break-glass", "!wait until")
	c.inChinese(actions.BreakGlass, http.MethodPost, "/emergency", func() url.Values {
		form := typed(back, "切回", "sh", "k-4")
		form.Set("override", "flap_wait")
		return form
	}()).location()

	// Somebody was faster, and the only region stays.
	c.inChinese(actions.OnCall, http.MethodPost, "/emergency", typed(swapForm("sh-spare", "sh-main"), "再切", "sh", "k-5")).
		contains(409, "expect_mismatch", "sh 当前服务的端点已是：sh-main", "请重新查看，再以当前值重试", "!look again")
	region := url.Values{"action": {"region_state"}, "app": {"mobile"}, "region": {"sh"}, "expect": {"draining"}, "state": {"off"}}
	c.inChinese(actions.OnCall, http.MethodPost, "/emergency", typed(region, "下线", "sh", "k-6")).
		contains(409, "expect_mismatch", "区域 sh 现在服务中，不再是 &#34;draining&#34;")

	c.strict.Store(false)
	other := url.Values{"action": {"region_state"}, "app": {"mobile"}, "region": {"hf"}, "expect": {"active"}, "state": {"off"}}
	c.inChinese(actions.OnCall, http.MethodPost, "/emergency", typed(other, "下线", "hf", "k-8")).location()
	region.Set("expect", "active")
	c.inChinese(actions.OnCall, http.MethodGet, "/emergency?"+region.Encode(), nil).
		contains(200, "规则 last_region：sh 是 mobile 最后一个可用区域", "先让另一个区域恢复接入新会话", "任何人都不能越过此规则", "!last usable region")
	c.inChinese(actions.OnCall, http.MethodPost, "/emergency", typed(region, "下线", "sh", "k-9")).contains(422, "last_region", "sh 是 mobile 最后一个可用区域")

	// The API has English, and no more fields than before.
	c.post(actions.OnCall, "/emergency?dry_run=true", swapBack).refused(http.StatusConflict, "expect_mismatch")
	english := c.browse(http.MethodPost, "/emergency", typed(swapForm("sh-spare", "sh-main"), "again", "sh", "k-7"), "Cookie", c.signedIn(actions.OnCall))
	english.contains(409, "the serving endpoints of sh are now: sh-main", "look again, then repeat with the current value")
	if text := string(c.post(actions.OnCall, "/emergency?dry_run=true", swapOut).ok().body); strings.Contains(text, "Said") || strings.Contains(text, "正常") || !strings.Contains(text, "is up, seen by 1 of 1") {
		t.Errorf("the API says %s", text)
	}
}

func TestAFreezeAndAStaleBaseAreSaidInChinese(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	draft := c.draft(actions.ReleaseEngineer, spare(t), 1)
	at := "/changes/" + draft.ID
	freeze := url.Values{"action": {"freeze"}, "expect": {"open"}, "state": {"frozen"}}
	c.inChinese(actions.OnCall, http.MethodPost, "/emergency", typed(freeze, "变更窗口", "freeze", "k-1")).location()
	c.inChinese(actions.OnCall, http.MethodPost, "/emergency", typed(freeze, "变更窗口", "freeze", "k-2")).
		contains(409, "expect_mismatch", "变更现在已冻结，不再是 &#34;open&#34;")
	publish := url.Values{"reason": {"备用域名"}, "digest": {draft.Digest}}
	c.inChinese(actions.ReleaseEngineer, http.MethodPost, at+"/publish", publish).
		contains(409, "stale_base", "配置基于版本 1 编写，而最新版本是 2", "请查看此后的变更", "!look at what changed")
	publish.Set("digest", strings.Repeat("0", 64))
	c.inChinese(actions.ReleaseEngineer, http.MethodPost, at+"/publish", publish).contains(409, "stale_paper", "在您查看之后已被修改；未发布")
	fresh := c.draft(actions.ReleaseEngineer, spare(t), 2)
	publish.Set("digest", fresh.Digest)
	c.inChinese(actions.ReleaseEngineer, http.MethodPost, "/changes/"+fresh.ID+"/publish", publish).
		contains(409, "<code>frozen</code>", "变更已冻结", "在应急页面解除冻结；应急操作和旧版本重新上线不受影响", "!changes are frozen")
}

func TestARoleThatMayNotIsSaidInChinese(t *testing.T) {
	t.Parallel()
	c := published(t, "sqlite")
	c.inChinese(actions.Viewer, http.MethodPost, "/emergency", typed(swapForm("sh-main", "sh-spare"), "演练", "sh", "k-1")).
		contains(403, "<code>role</code>", "角色 viewer 无权执行 emergency", "请具有以下角色之一的人操作：on-call, release-engineer, break-glass, administrator", "!may not")
	c.inChinese(actions.Viewer, http.MethodGet, "/nowhere", nil).contains(404, "没有该页面", "导航栏列出了全部页面")
}

func TestAListRemovalThatTakesTwoIsSaidInChinese(t *testing.T) {
	t.Parallel()
	c := careful(t, "sqlite")
	if r := c.upload(actions.ListManager, map[string]string{"reason": "monthly list", "max_bad": "0"}, strings.NewReader("d-1\nd-20\n")); r.status != http.StatusSeeOther {
		t.Fatalf("%d %s", r.status, r.body)
	}
	c.inChinese(actions.ListManager, http.MethodGet, "/lists/staff", nil).contains(200, "10 个标识中将移除 9 个，超过 10 %", "!ids go")
	apply := "/lists/staff/imports/" + c.imports()[0].ID + "/apply"
	c.inChinese(actions.ListManager, http.MethodPost, apply, url.Values{"reason": {"每月名单"}, "confirm": {"staff"}}).
		contains(403, "needs_approval", "此变更须由第二人批准；名单 staff 未变，内容已保存为导入 ", "10 个标识中将移除 9 个，超过 10 %（list_removal）", "由另一人在名单页面批准", "!second person")
	sign := url.Values{"reason": {"已核对"}, "digest": {c.imports()[0].Digest}}
	c.inChinese(actions.ListManager, http.MethodPost, "/lists/staff/approve", sign).
		contains(403, "self_approval", "list-manager 参与编写了导入 ", "须由另一人批准", "请具有 approver 角色的人处理")
}

func TestAGrayThatIsNotReadySaysSoInChinese(t *testing.T) {
	t.Parallel()
	g := grays(t, published(t, "sqlite"))
	const path = "/gray/mobile/gray"
	turn := func(action, expect string) *reply {
		return g.inChinese(actions.ReleaseEngineer, http.MethodPost, path, url.Values{"reason": {"灰度"}, "action": {action}, "expect": {expect}})
	}
	turn("start", "0").contains(404, "no_plan", "mobile/gray 还没有灰度计划")
	g.inChinese(actions.ReleaseEngineer, http.MethodPost, path+"/plan", url.Values{"reason": {"灰度"}, "rev": {"0"}, "steps": {"20, 5"}, "bake": {"10"}, "sample": {"500"}, "probe": {"true"}}).
		contains(422, "bad_plan", "计划有错误；未做任何变更", "500 须大于 2000 且不超过 10000：灰度只能增长", "!only grows")
	g.planned(`,"steps":[500,2000],"bake":"10m","sample":500`)
	turn("next", "0").contains(409, "gray_state", "灰度 mobile/gray 已计划", "请先开始或继续")
	turn("start", "0").contains(303)
	turn("next", "500").contains(409, "not_ready", "mobile/gray 的下一步还须等待；未做任何变更", "尚有节点未生效版本 ", "情况不好请中止", "!has to wait")
	turn("next", "100").contains(409, "expect_mismatch", "mobile/gray 的比例现在是 500；页面显示的是 &#34;100&#34;，计划停在 500")
	g.look() // every replica serves it
	g.clock.ahead.Add(int64(time.Minute))
	g.inChinese(actions.Viewer, http.MethodGet, path, nil).
		contains(200, "下一步还需等待：", "观察时间：还剩 ", "，共 10m0s", "样本：0 / 500 个请求", "信号：", "!bake:", "!sample:")
}
