// Sends every form of a page that changes something, once for each payload, with the
// payload in every field that takes text. What stays of it, pages show afterwards.
(async (payloads) => {
  let sent = 0, kept = 0;
  const text = "input:not([type]), input[type=text], input[type=search], textarea";
  for (const form of document.querySelectorAll("form[method=post]")) {
    if (/\/(logout|password|factor|arm|revoke|accounts\/admin)\b/.test(form.getAttribute("action"))) continue; // these end the session that plants
    for (const payload of payloads) {
      const values = new FormData(form);
      for (const field of form.querySelectorAll(text)) {
        if (field.name && field.name !== "confirm" && field.type !== "hidden") values.set(field.name, field.name === "document" ? field.value.replace(/name: .*/, "name: " + JSON.stringify(payload)) : payload);
      }
      for (const box of form.querySelectorAll("input[type=checkbox][name=roles]")) if (box.value === "viewer") values.append("roles", "viewer");
      values.set("key", crypto.randomUUID());
      const answer = await fetch(form.action, { method: "POST", body: form.enctype === "multipart/form-data" ? values : new URLSearchParams(values), headers: { Accept: "text/html" } });
      sent++;
      if (new URL(answer.url).pathname === "/login") throw new Error(`${form.action} ended the session`);
      if (answer.status === 413 || answer.status >= 500) throw new Error(`${form.action} answers ${answer.status}`);
      if (answer.ok) kept++;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const planted = page.querySelector("[data-planted], [onerror], [onload], [onfocus], [onmouseover]");
      if (planted) throw new Error(`${form.action}: ${planted.outerHTML} came of ${payload}`);
    }
  }
  return [sent, kept];
})
