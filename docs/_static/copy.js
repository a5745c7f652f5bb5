// Add a button below each command that copies it.

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // the page was loaded without https
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
  button.setAttribute("aria-live", "polite"); // a screen reader announces its new text
  button.addEventListener("click", async () => {
    await copied(text);
    button.textContent = "copied";
    setTimeout(() => (button.textContent = "copy"), 2000);
  });
  command.after(button);
}

const COMMANDS = ".highlight-bash pre, .highlight-powershell pre";
addEventListener("DOMContentLoaded", () => document.querySelectorAll(COMMANDS).forEach(copyable));
