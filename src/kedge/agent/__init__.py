"""The agent: a loop that sends the conversation to a model and runs the tools that the model
calls."""

from kedge.agent.agent import Agent
from kedge.agent.commands import CommandOptions
from kedge.agent.context import Surroundings
from kedge.agent.runner import AnswerOptions, PromptOptions, PromptParts
from kedge.agent.settings import AgentSettings
from kedge.agent.tools.builtin import BUILTIN
from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import Output, Tool, ToolFailure, tool

__all__ = [
    "BUILTIN",
    "Agent",
    "AgentSettings",
    "AnswerOptions",
    "Call",
    "CommandOptions",
    "Output",
    "PromptOptions",
    "PromptParts",
    "Surroundings",
    "Tool",
    "ToolFailure",
    "tool",
]
