"""The tools of kedge, in the order in which models get them and clients list them, which is
OpenCode's."""

from kedge.agent.tools.apply_patch import apply_patch
from kedge.agent.tools.bash import bash
from kedge.agent.tools.edit import edit
from kedge.agent.tools.glob import glob
from kedge.agent.tools.grep import grep
from kedge.agent.tools.plan_exit import plan_exit
from kedge.agent.tools.question import question
from kedge.agent.tools.read import read
from kedge.agent.tools.skill import skill
from kedge.agent.tools.task import task
from kedge.agent.tools.todowrite import todowrite
from kedge.agent.tools.tool import Tool
from kedge.agent.tools.webfetch import webfetch
from kedge.agent.tools.write import write

BUILTIN: tuple[Tool, ...] = (
    question,
    bash,
    read,
    glob,
    grep,
    edit,
    write,
    task,
    webfetch,
    todowrite,
    skill,
    apply_patch,
    plan_exit,
)
