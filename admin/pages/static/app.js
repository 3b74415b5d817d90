// The console's script: posts forms in place, follows server-sent events, asks again
// for what ages. Pages work without it. It inserts only what this server rendered.
"use strict";
(() => {
  const own = (url) => new URL(url, location.href).origin === location.origin;

  const parse = (html) => new DOMParser().parseFromString(html, "text/html"); // runs no scripts

  // changed fields are those that somebody typed in, ticked or has the focus in.
  const changed = (f) => f === document.activeElement || (f.matches("[type=checkbox], [type=radio]") ? f.checked !== f.defaultChecked
    : f.matches("select") ? [...f.options].some((o) => o.selected !== o.defaultSelected) : f.value !== f.defaultValue);
  const fields = "input[name]:not([type=hidden]), select[name], textarea[name]";

  // keep moves changed fields from an element to its successor. A form with a rev edits
  // a text: it stays whole, with the rev that the text was made from.
  function keep(old, node) {
    const form = (f, root) => { const of = f.closest("form"); return of && root.contains(of) ? of : null; };
    const name = (of) => of && `${of.getAttribute("action")} ${of.querySelector("[name=action]")?.value}`;
    for (const f of [...old.querySelectorAll(fields)].filter(changed)) {
      const of = form(f, old), same = (g) => name(form(g, node)) === name(of);
      if (!old.contains(f)) continue; // moved with its form
      const fresh = [...node.querySelectorAll(fields)].find((g) => same(g) && g.name === f.name && g.type === f.type && (!f.matches("[type=checkbox], [type=radio]") || g.value === f.value));
      if (fresh && of?.querySelector("[name=rev]")) form(fresh, node).replaceWith(of);
      else if (fresh) fresh.replaceWith(f);
    }
  }

  // put replaces elements by those of the same id in an answer; keeping: without what
  // somebody typed into them.
  function put(html, ids, keeping) {
    const page = parse(html);
    const found = [];
    for (const id of ids) {
      const old = document.getElementById(id), fresh = page.getElementById(id);
      if (!old || !fresh) continue;
      const active = old.contains(document.activeElement) ? document.activeElement : null;
      const back = active && (active.id ? "#" + CSS.escape(active.id) : active.name ? `[name="${CSS.escape(active.name)}"]` : "");
      const node = document.importNode(fresh, true);
      const [from, to] = [active?.selectionStart, active?.selectionEnd];
      if (keeping) keep(old, node);
      for (const open of old.querySelectorAll("details[open][id]")) node.querySelector("#" + CSS.escape(open.id))?.setAttribute("open", "");
      old.replaceWith(node);
      start(node);
      const focus = keeping && active && node.contains(active) ? active : (!keeping && node.querySelector("[autofocus]")) || (back && node.querySelector(back));
      if (focus) focus.focus({ preventScroll: keeping });
      if (focus && focus === active && typeof from === "number") focus.setSelectionRange(from, to);
      found.push(id); // not node.id: a field of that name in a form hides it
    }
    return found;
  }

  async function ask(url, id, init = {}) {
    if (!own(url)) throw new Error("not ours");
    const answer = await fetch(url, { ...init, headers: { "X-Fragment": id, Accept: "text/html" }, credentials: "same-origin" });
    const next = answer.headers.get("X-Location"), at = answer.headers.get("X-Replace");
    if (at && own(at)) history.replaceState(null, "", at);
    if (answer.status === 401 && !init.quiet) location.reload();
    else if (next && own(next)) location.assign(next);
    else return answer.text();
    return null;
  }

  const busy = (form, on) => {
    form.setAttribute("aria-busy", String(on));
    for (const b of form.querySelectorAll("button, input[type=submit]")) {
      if (on) { b.dataset.was = b.disabled ? "1" : ""; b.disabled = true; }
      else { b.disabled = b.dataset.was === "1"; }
    }
  };

  addEventListener("submit", async (e) => {
    const form = e.target, id = form.dataset.fragment, by = e.submitter;
    if (form.getAttribute("aria-busy") === "true") { e.preventDefault(); return; }
    if (form.hasAttribute("data-download")) return; // no page follows
    if (!id) { setTimeout(() => busy(form, true)); return; } // after the browser has read its values
    e.preventDefault();
    const values = new FormData(form, by);
    const url = new URL((by && by.getAttribute("formaction")) || form.getAttribute("action") || location.href, location.href);
    const method = ((by && by.getAttribute("formmethod")) || form.getAttribute("method") || "get").toLowerCase();
    const upload = form.enctype === "multipart/form-data";
    busy(form, true);
    try {
      if (method === "get") url.search = new URLSearchParams(values);
      const html = await ask(url, id, method === "get" ? {} : { method: "POST", body: upload ? values : new URLSearchParams(values) });
      if (html === null) return;
      const found = put(html, ["said", id]);
      since = Date.now();
      const said = document.querySelector("#said [role=alert], #said [role=status]");
      if (said) said.scrollIntoView({ block: "nearest" });
      if (!found.includes(id) && !said) location.reload();
      if (method === "get") history.replaceState(null, "", url);
    } catch {
      busy(form, false); // the network: let the browser say so, in its own way
      delete form.dataset.fragment;
      form.requestSubmit(by);
      return;
    }
    busy(form, false);
  });

  // Coming back by the browser's button finds no form in flight.
  addEventListener("pageshow", (e) => e.persisted && document.querySelectorAll("form[aria-busy=true]").forEach((f) => busy(f, false)));

  // dirty elements hold what somebody types: they are not replaced under their hands.
  const dirty = (el) => el.contains(document.activeElement) && document.activeElement.matches("input:not([type=hidden]), textarea, select") || el.querySelector("form[aria-busy=true]");

  function refresh(el, seconds) {
    const id = el.id;
    const timer = setInterval(async () => {
      const now = document.getElementById(id);
      if (now !== el) { clearInterval(timer); return; }
      if (document.hidden || dirty(el)) return;
      try {
        const html = await ask(location.href, id);
        if (html) put(html, [id], true);
      } catch { /* the next turn */ }
    }, seconds * 1000);
  }

  // Forms act on what their page shows. After a minute it is looked at again: what is
  // marked data-again shows the new state, and where a form would do something else by
  // now, or nobody answers, the page says how old it is.
  const minute = 60_000;
  let since = Date.now(), asked = since;
  const acting = (root) => [...root.querySelectorAll("main form[method=post]")]
    .filter((f) => !f.querySelector("[name=rev]") && f.querySelector("[name=expect], [name=digest], [name=confirm], [name=started]"));
  const doing = (root) => acting(root).map((f) => [f.getAttribute("action"), ...[...f.querySelectorAll("[type=hidden]:not([name=key]), button")]
    .map((e) => e.value || e.textContent)].join(" ")).join("\n");
  const aging = (f) => { const region = f.closest("[data-refresh]"); return !region || dirty(region); };

  async function renew() {
    const aged = document.querySelector("#aged > p"), now = Date.now(), forms = acting(document);
    if (!forms.some(aging)) since = asked = now;
    if (!aged || document.hidden || now - asked < minute || forms.some((f) => f.getAttribute("aria-busy") === "true")) return;
    asked = now;
    const was = doing(document);
    let html = null;
    try { html = await ask(location.href, "main", { quiet: true }); } catch { /* it says its age */ }
    if (was !== doing(document)) return; // something was done meanwhile
    const page = parse(html || "");
    put(html || "", [...document.querySelectorAll("main [data-again][id]")].map((e) => e.id), true);
    if (page.querySelector("#said [role=alert]")) put(html, ["said"]);
    aged.hidden = was === doing(page);
    if (aged.hidden) since = Date.now();
    const says = aged.querySelector("[data-says]");
    says.textContent = says.dataset.says.replace("#", Math.round((Date.now() - since) / 1000));
  }
  setInterval(renew, 5000);

  // again fetches the page anew and keeps what was typed.
  async function again(e) {
    const link = e.target.closest("#aged a");
    if (!link) return;
    e.preventDefault();
    let html = null;
    try { html = await ask(location.href, "main"); } catch { return; } // the line stays
    if (!parse(html).querySelector("#aged")) { location.reload(); return; }
    put(html, ["main"], true);
    since = asked = Date.now();
    document.getElementById("main").focus();
  }
  addEventListener("click", again);

  function follow(el) {
    const url = el.dataset.events, id = el.id;
    if (!own(url)) return;
    let events = null, failed = 0;
    const show = (html) => {
      const now = document.getElementById(id);
      if (!now) { if (events) events.close(); return; }
      const page = new DOMParser().parseFromString(html, "text/html");
      now.replaceChildren(...document.importNode(page.getElementById(id) || page.body, true).childNodes);
      start(now, true);
    };
    const poll = () => setInterval(async () => {
      if (document.hidden || !document.getElementById(id)) return;
      try { const html = await ask(location.href, id); if (html) show(html); } catch { /* the next turn */ }
    }, 5000);
    if (!window.EventSource) { poll(); return; }
    events = new EventSource(url);
    events.onmessage = (e) => { failed = 0; show(e.data); };
    events.addEventListener("end", () => events.close());
    events.onerror = () => {
      if (++failed < 4 && events.readyState !== EventSource.CLOSED) return;
      events.close();
      if (el.hasAttribute("data-live")) poll();
    };
    addEventListener("pagehide", () => events.close());
  }

  // load puts what a link leads to in the place of its element: what a page did not wait for.
  async function load(el) {
    const link = el.querySelector("a[href]");
    try { if (link) put(await ask(link.href, el.id) || "", [el.id]); } catch { /* the link stays */ }
  }

  // link keeps a slider and a number of one name in step.
  function link(el) {
    const other = document.getElementById(el.dataset.link);
    if (!other) return;
    el.addEventListener("input", () => { other.value = el.value; });
    other.addEventListener("input", () => { el.value = other.value; });
  }

  function start(root, inside) {
    const all = (sel) => [...(!inside && root.matches && root.matches(sel) ? [root] : []), ...root.querySelectorAll(sel)];
    all("[data-events][id]").forEach(follow);
    all("[data-refresh][id]").forEach((el) => refresh(el, Math.max(5, Number(el.dataset.refresh) || 15)));
    all("[data-load][id]").forEach(load);
    all("[data-link]").forEach(link);
  }

  // Keys: g, then the letter of the element that has data-hotkey="g LETTER".
  let last = "", at = 0;
  addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select, [contenteditable]")) return;
    const now = Date.now(), keys = now - at < 1500 ? `${last} ${e.key}` : e.key;
    last = e.key; at = now;
    const target = [...document.querySelectorAll("[data-hotkey]")].find((el) => el.dataset.hotkey === keys);
    if (target) { e.preventDefault(); target.click(); }
  });

  // A menu closes when something else is clicked, or by Escape.
  addEventListener("click", (e) => document.querySelectorAll("details.menu[open]").forEach((d) => d.contains(e.target) || d.removeAttribute("open")));
  addEventListener("keyup", (e) => e.key === "Escape" && document.querySelectorAll("details.menu[open]").forEach((d) => { d.removeAttribute("open"); d.querySelector("summary").focus(); }));

  start(document);
})();
