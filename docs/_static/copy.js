// A command can be copied: a button below it.

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // a page that came without https
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

function copyable(command) {
  const button = document.createElement("button");
  const text = command.textContent.trimEnd();
  Object.assign(button, { type: "button", className: "copy", textContent: "copy" });
  button.setAttribute("aria-live", "polite"); // what it says afterwards is spoken
  button.addEventListener("click", async () => {
    await copied(text);
    button.textContent = "copied";
    setTimeout(() => (button.textContent = "copy"), 2000);
  });
  command.after(button);
}

const COMMANDS = ".highlight-bash pre, .highlight-powershell pre";
addEventListener("DOMContentLoaded", () => document.querySelectorAll(COMMANDS).forEach(copyable));
