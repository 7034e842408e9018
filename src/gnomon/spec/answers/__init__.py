"""What the public functions return, by command. `to_dict()` is the JSON of the same command."""

from gnomon.spec.answers.base import JsonAnswer, NotModelled, Resolved, Result
from gnomon.spec.answers.checked import Exported, Verified
from gnomon.spec.answers.explained import AnswerNode, Explanation, History, KeptRun
from gnomon.spec.answers.serving import PlanReport, PlanScore, ServingReport
from gnomon.spec.answers.step import Change, Fit, ModulePrediction, OperatorTime, Prediction, Shortage
from gnomon.spec.answers.training import TrainingPlanReport, TrainingReport

__all__ = [
    "AnswerNode",
    "Change",
    "Explanation",
    "Exported",
    "Fit",
    "History",
    "JsonAnswer",
    "KeptRun",
    "ModulePrediction",
    "NotModelled",
    "OperatorTime",
    "PlanReport",
    "PlanScore",
    "Prediction",
    "Resolved",
    "Result",
    "ServingReport",
    "Shortage",
    "TrainingPlanReport",
    "TrainingReport",
    "Verified",
]
