// Whoever orders something is asked whether they mean it, and why: the reason is kept with the order.

import { post } from "./api.js";
import { el } from "./dom.js";

/**
 * Ask, then send. Resolves to the daemon's answer, or null if the reader thought better of it.
 * `fields` are more controls of the form, by name in the body; what is refused is said in the dialog, which stays.
 */
export function confirmed({ title, text, verb, path, body = {}, fields = [], danger = false }) {
  return new Promise((resolve) => {
    const reason = el("textarea", { name: "reason", id: "d-reason", rows: "3", required: true, maxlength: "1000" });
    const wrong = el("p", { role: "alert", class: "wrong" });
    const go = el("button", { type: "submit", class: danger ? "danger" : "primary" }, verb);
    const form = el(
      "form",
      {},
      el("h2", { id: "d-title" }, title),
      el("p", { id: "d-text" }, text),
      fields.map(([label, control]) => {
        control.id = `d-${control.name}`;
        return el("div", { class: "field" }, el("label", { for: control.id }, label), control);
      }),
      el("div", { class: "field" }, el("label", { for: "d-reason" }, "Reason, kept with the order"), reason),
      wrong,
      el("div", { class: "actions" }, el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go),
    );
    const dialog = el("dialog", { "aria-labelledby": "d-title", "aria-describedby": "d-text" }, form);
    let answer = null;
    form.onsubmit = async (event) => {
      event.preventDefault();
      if (!reason.value.trim()) {
        wrong.textContent = "Say why: whoever looks at this later has only your words.";
        reason.focus();
        return;
      }
      go.disabled = true;
      const more = Object.fromEntries(fields.map(([, control]) => [control.name, Number(control.value)]));
      try {
        answer = await post(path, { ...body, ...more, reason: reason.value.trim() });
        dialog.close();
      } catch (error) {
        wrong.textContent = `Not done: ${error.message}`;
      } finally {
        go.disabled = false;
      }
    };
    const opener = document.activeElement;
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (opener?.isConnected) opener.focus();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
    reason.focus();
  });
}
