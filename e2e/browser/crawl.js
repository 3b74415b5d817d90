// Follows what leads to pages: links, and forms that only ask. Of pages that differ
// in names and numbers alone, one is enough.
(async () => {
  const kind = (url) => url.pathname.split("/").map((part, i) => i > 1 && part !== "new" && part !== "edit" && part !== "diff" && part !== "preview" ? "*" : part).join("/") +
    "?" + [...url.searchParams].filter(([name]) => ["tab", "action", "state", "edit"].includes(name)).join("&");
  const found = [], seen = new Set(), next = [new URL("/", location.href)];
  const look = (raw) => {
    const url = new URL(raw, location.href);
    url.hash = "";
    if (url.origin !== location.origin || /^\/(api|static|events|login|logout)\b/.test(url.pathname)) return;
    if (["lang", "theme", "before", "after"].some((name) => url.searchParams.has(name))) return;
    if (seen.has(kind(url))) return;
    seen.add(kind(url));
    next.push(url);
  };
  seen.add(kind(next[0]));
  while (next.length) {
    const url = next.shift();
    const answer = await fetch(url, { headers: { Accept: "text/html" } });
    if (!(answer.headers.get("Content-Type") || "").startsWith("text/html")) continue; // a download
    if (answer.status === 403) continue;
    if (!answer.ok && answer.status !== 409 && answer.status !== 422) throw new Error(`${url} answers ${answer.status}`); // those are pages, too
    found.push(url.pathname + url.search);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const a of page.querySelectorAll("a[href]:not([download])")) look(new URL(a.getAttribute("href"), url));
    for (const form of page.querySelectorAll("form[method=get]")) {
      const to = new URL(form.getAttribute("action") || url.pathname, url);
      to.search = new URLSearchParams([...form.querySelectorAll("input[type=hidden]")].map((i) => [i.name, i.value]));
      look(to);
    }
  }
  return found;
})()
